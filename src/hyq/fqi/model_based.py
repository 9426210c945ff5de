"""Model-based hybrid RL: the iterative system identification of Ross and Bagnell (2012).

    for t = 1, 2, ...:
        act with the current policy and keep what happened
        for every h:  (P_h, r_h) <- best model of  1/2 offline (exploration) + 1/2 online data
        plan:         Q_h = r_h + P_h max_a Q_{h+1},   h = H-1, ..., 0;   act greedily on Q

It is Hy-Q's closest relative: the same two sources, weighed the same way, and the same reason for
both. The offline half keeps the model good where a good policy goes, the online half where the
current policy, misled by the model, goes. Models here are tabular or linear in known features.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

import numpy as np

from hyq.core.seeding import Streams
from hyq.core.settings import check_positive, check_range
from hyq.core.types import Array, FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.mix import mixing_weights
from hyq.data.online import OnlineStore
from hyq.data.steps import StepView
from hyq.fqi.base import Step
from hyq.fqi.classes import F, num_actions
from hyq.fqi.hyq_fqi import FitReport, HyQConfig, HyQState, iterate
from hyq.fqi.linear import LinearFunction
from hyq.fqi.rollout import VectorEnv
from hyq.fqi.tabular import TabularFunction

Range = tuple[float, float]


class ModelClass(Protocol[F]):
    """Models of one step, with their fit and their plan."""

    def zero(self) -> F:
        """Return Q = 0, of the class that the planned Q_h belong to."""
        ...

    def plan(
        self, rows: Transitions, weight: FloatArray, next_function: F | None, value_range: Range
    ) -> F:
        """Fit P_h and r_h to weighted rows, and return r_h + P_h max_a `next_function`."""
        ...


@dataclass(frozen=True)
class ModelBasedConfig:
    """The settings; the online episodes of an iteration are the `num_envs` of the environment."""

    iterations: int = 50
    """Iterations; each ends with a policy to evaluate."""
    offline_share: float | None = 0.5
    """Weight of the offline data in every fit: one half in Ross and Bagnell; None pools rows."""
    value_range: Range = (0.0, 1.0)
    """What a plan expects of the next state is kept inside this range, [0, V_max], whatever the
    model says."""

    def __post_init__(self) -> None:
        check_positive(self, "iterations")
        if self.offline_share is not None:
            check_range("offline_share", self.offline_share, 0, 1)


@dataclass(frozen=True)
class ModelBased(Generic[F]):
    """The model-based hybrid. Its metrics are:

    * `realised_offline_share`: weight the offline data had in the fits, averaged over steps;
    * `online_residual`: root mean squared Bellman residual of the *old* plan on the data its own
      policy has just collected: how wrong the model was where it sent the policy.
    """

    model: ModelClass[F]
    config: ModelBasedConfig = ModelBasedConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: HyQState[F] | None = None
    ) -> Iterator[Step[HyQState[F]]]:
        """Alternate between collecting with the planned policy and planning in a new model."""
        num_actions(env.single_action_space)  # plans count actions from 0
        config = self.config
        how = HyQConfig(config.iterations, "q-type", value_range=config.value_range)

        def fit(
            data: StepView, online: OnlineStore, functions: tuple[F, ...], t: int
        ) -> tuple[tuple[F, ...], FitReport]:
            started = time.perf_counter()
            planned, share = plan(data, online, self.model, config)
            seconds = {"plan": time.perf_counter() - started}
            return planned, FitReport({"realised_offline_share": share}, seconds)

        return iterate(env, offline, streams, state, self.model.zero(), how, fit)

    def restore(
        self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]
    ) -> HyQState[F]:
        """Load what Hy-Q loads: the model is a function of the data."""
        return HyQState.restore(self.model.zero(), replaced, appended)


def plan(
    offline: StepView, online: OnlineStore, model: ModelClass[F], config: ModelBasedConfig
) -> tuple[tuple[F, ...], float]:
    """Fit a model of every step and solve it backwards; return Q and the offline data's weight."""
    functions: list[F] = []
    shares = []
    for h in reversed(range(offline.horizon)):
        logged = offline.at(h)
        rows = Transitions.concatenate([logged, *online.at(h)])
        weight = mixing_weights(len(logged), len(rows) - len(logged), config.offline_share)
        next_function = functions[-1] if functions else None
        functions.append(model.plan(rows, weight, next_function, config.value_range))
        shares.append(float(weight[: len(logged)].sum()))
    return tuple(reversed(functions)), float(np.mean(shares))


@dataclass(frozen=True)
class TabularModel:
    """P_h and r_h as tables: the weighted frequencies and means of the data.

    A pair (s, a) without data leads nowhere and pays nothing.
    """

    states: int
    actions: int

    def zero(self) -> TabularFunction:
        """Return the table of zeros."""
        return TabularFunction(np.zeros((self.states, self.actions)))

    def fit(self, rows: Transitions, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P_h (S, A, S), less the weight of terminations, and r_h (S, A)."""
        shape = (self.states, self.actions, self.states)
        indices = (rows.observation, rows.action, rows.next_observation)
        pair = np.ravel_multi_index(indices[:2], shape[:2])
        triple = np.ravel_multi_index(indices, shape)
        pairs, triples = self.states * self.actions, self.states * self.actions * self.states
        mass = np.bincount(pair, weight, pairs).reshape(*shape[:2], 1)
        paid = np.bincount(pair, weight * rows.reward, pairs).reshape(mass.shape)
        continuing = np.bincount(triple, weight * rows.discount, triples).reshape(shape)
        seen = mass > 0
        reward = np.divide(paid, mass, out=np.zeros(mass.shape), where=seen)
        return np.divide(continuing, mass, out=np.zeros(shape), where=seen), reward[..., 0]

    def plan(
        self,
        rows: Transitions,
        weight: FloatArray,
        next_function: TabularFunction | None,
        value_range: Range,
    ) -> TabularFunction:
        """Back values up exactly through the fitted tables."""
        transition, reward = self.fit(rows, weight)
        if next_function is None:
            return TabularFunction(np.clip(reward, *value_range))
        value = next_function.best(np.arange(self.states))
        return TabularFunction(np.clip(reward + transition @ value, *value_range))


@dataclass(frozen=True)
class LinearModel:
    """P_h(s' | s, a) = <phi(s, a), mu_h(s')> and r_h(s, a) = <phi(s, a), theta_h>, by ridge
    regression. An observation is the matrix phi(s, .), and mu_h lives on the observed successors.
    """

    dimension: int
    ridge: float = 1e-6
    """Pull towards zero, in units of the total weight of the data, which is one."""

    def __post_init__(self) -> None:
        check_positive(self, "ridge")  # so that the regression has one solution

    def zero(self) -> LinearFunction:
        """Return w = 0: with such a model every backup is linear."""
        return LinearFunction(np.zeros(self.dimension))

    def fit(self, rows: Transitions, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mu_h (d, n), one column for the successor of each row, and theta_h (d,)."""
        features = rows.observation[np.arange(len(rows)), rows.action]
        weighted = features * weight[:, None]
        gram = weighted.T @ features + self.ridge * np.eye(self.dimension)
        measure = np.linalg.solve(gram, weighted.T)
        return measure * rows.discount, measure @ rows.reward

    def plan(
        self,
        rows: Transitions,
        weight: FloatArray,
        next_function: LinearFunction | None,
        value_range: Range,
    ) -> LinearFunction:
        """Return the weights theta_h + mu_h V_{h+1}, V kept in range."""
        measure, reward = self.fit(rows, weight)
        if next_function is None:
            return LinearFunction(reward)
        value = np.clip(next_function.best(rows.next_observation), *value_range)
        return LinearFunction(reward + measure @ value)
