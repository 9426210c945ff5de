"""Hy-Q: fitted Q-iteration on offline and online data together (Algorithms 1 and 2).

    f^1 = 0
    for t = 1, 2, ...:
        act with the greedy policy of f^t and keep what happened       online collection
        for h = H-1, ..., 0:                                           FQI on both sources
            f_h <- argmin over F_h of  E_{offline, online} (f(s, a) - r - max_a' f_{h+1}(s', a'))^2

The Q-type keeps every tuple of its episodes (Algorithm 1). The V-type rolls in to each step h and
takes one uniformly random action there (Algorithm 2); it suits models whose features are unknown,
such as the combination lock. Nothing explores on purpose: either f has a small Bellman error where
its own policy goes, and is then as good as any policy the offline data covers, or going there has
brought data unlike any seen before.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import gymnasium as gym
import numpy as np

from hyq.core.schedules import PiecewiseLinear
from hyq.core.seeding import Streams
from hyq.core.settings import check_choices, check_positive, check_range
from hyq.core.types import FloatArray, Transitions
from hyq.data.dataset import Dataset
from hyq.data.mix import mixing_weights
from hyq.data.online import Batch, OnlineStore
from hyq.data.steps import StepView
from hyq.fqi.base import State, Step
from hyq.fqi.classes import F, FunctionClass, GreedyPolicy, Regression, ValueFunction, num_actions
from hyq.fqi.rollout import VectorEnv, lockstep, uniform_from

Collection = Literal["q-type", "v-type", "none"]


@dataclass(frozen=True)
class HyQConfig:
    """The settings of Hy-Q; m_on is the `num_envs` of the environment it is given."""

    iterations: int = 50
    """T, the number of iterations."""
    collection: Collection = "v-type"
    """How to collect online tuples; with "none" this is offline FQI."""
    offline_share: float | PiecewiseLinear | None = 0.5
    """Weight of the offline data in every regression, possibly by iteration; None pools all rows
    equally. A share of 0 or 1 leaves the other source out altogether."""
    value_range: tuple[float, float] = (0.0, 1.0)
    """Targets are kept inside this range: [0, V_max] in the paper."""

    def __post_init__(self) -> None:
        check_positive(self, "iterations")
        check_choices(self)
        if self.offline_share is not None:
            check_range("offline_share", self.offline_share, 0, 1)

    def share_at(self, iteration: int) -> float | None:
        """Return the offline share of an iteration, counted from 0."""
        share = self.offline_share
        return share(iteration) if isinstance(share, PiecewiseLinear) else share


@dataclass(frozen=True)
class HyQ:
    """Hy-Q with a function class. Its metrics are:

    * `realised_offline_share`: weight the offline data had in the regressions, averaged over steps;
    * `offline_residual`: root mean squared Bellman residual of the new f on the offline data;
    * `online_residual`: the same for the *old* f on the data its own policy has just collected and
      it has never seen. This is the explore-or-terminate signal: large while the policy still
      finds surprises.
    """

    family: FunctionClass[ValueFunction]
    config: HyQConfig = HyQConfig()

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: State | None = None
    ) -> Iterator[Step]:
        """Alternate between collecting with the greedy policy and regressing on all data."""
        config, data, zero = self.config, offline.by_step(), self.family.zero()
        if isinstance(env.single_action_space, gym.spaces.Discrete):
            num_actions(env.single_action_space)  # functions of all actions count them from 0
        state = state or State.of((zero,) * data.horizon)
        functions, online, (begin, samples) = state.functions(zero), state.online, state.counts
        for t in range(begin, config.iterations):
            started, metrics = time.perf_counter(), {}
            if config.collection != "none":
                seeds = Streams(streams.integer("collect", t))
                batch, used = collect(env, functions, config.collection, seeds)
                online, samples = online + batch, samples + used
                metrics["online_residual"] = online_residual(functions, batch, config)
            seconds = {"collect": time.perf_counter() - started}
            seeds, share = Streams(streams.integer("fit", t)), config.share_at(t)
            functions, fitted, spent = fitted_q_iteration(
                data, online, self.family, config, functions, seeds, share
            )
            yield Step(
                State.of(functions, t + 1, samples, online),
                policy=GreedyPolicy(functions),
                metrics=metrics | fitted,
                seconds=seconds | spent,
            )


def collect(
    env: VectorEnv, functions: Sequence[ValueFunction], collection: Collection, streams: Streams
) -> tuple[Batch, int]:
    """Collect m_on tuples for every step h; return them and the transitions they cost."""
    horizon, policy = len(functions), GreedyPolicy(functions)
    if collection == "q-type":
        steps = [rows for rows, _ in lockstep(env, policy, horizon, streams.integer("episodes"))]
        nothing = steps[-1][:0]
        return (*steps, *[nothing] * (horizon - len(steps))), env.num_envs * len(steps)
    batch, samples = [], 0
    for depth in range(horizon):
        rng = streams.generator("uniform-action", depth)
        acting = uniform_from(depth, policy, env, rng)
        steps = [
            rows for rows, _ in lockstep(env, acting, depth + 1, streams.integer("roll-in", depth))
        ]
        batch.append(steps[-1] if len(steps) == depth + 1 else steps[-1][:0])
        samples += env.num_envs * len(steps)
    return tuple(batch), samples


def fitted_q_iteration(
    offline: StepView,
    online: OnlineStore,
    family: FunctionClass[F],
    config: HyQConfig,
    previous: Sequence[F],
    streams: Streams,
    offline_share: float | None,
) -> tuple[tuple[F, ...], dict[str, float], dict[str, float]]:
    """Regress f_h on r + max f_{h+1}, for h from the last step to the first.

    The fit of step h starts from f_{h+1}, as in the paper, and that of the last step from its own
    previous self. Metrics and seconds are returned with the functions.
    """
    functions, start = list(previous), previous[-1]
    next_function: ValueFunction | None = None
    shares, squares, seconds = [], 0.0, {"targets": 0.0, "fit": 0.0}
    for h in reversed(range(len(functions))):
        started = time.perf_counter()
        logged = offline.at(h) if offline_share != 0.0 else offline.at(h)[:0]
        collected = online.at(h) if offline_share != 1.0 else []
        rows = Transitions.concatenate([logged, *collected])
        target = regression_target(rows, next_function, config)
        weight = mixing_weights(len(logged), len(rows) - len(logged), offline_share)
        oracle = streams.below("oracle", h)
        seconds["targets"] += (made := time.perf_counter()) - started
        found = family.fit(Regression(rows, target, weight, next_function, start, oracle))
        seconds["fit"] += time.perf_counter() - made
        error = found.at(logged.observation, logged.action) - target[: len(logged)]
        squares += float(np.square(error).sum())
        shares.append(float(weight[: len(logged)].sum()))
        functions[h] = next_function = start = found
    share = float(np.mean(shares))
    metrics = {"offline_residual": float(np.sqrt(squares / len(offline)))} if share else {}
    return tuple(functions), metrics | {"realised_offline_share": share}, seconds


def regression_target(
    rows: Transitions, next_function: ValueFunction | None, config: HyQConfig
) -> FloatArray:
    """Return r + max_a' f_{h+1}(s', a') (Algorithm 1, line 7); beyond the last step f is zero.

    Targets are kept inside `value_range`, [0, V_max] in the paper, so that one bad fit cannot push
    values out of the class and down the chain.
    """
    v_t: FloatArray = np.zeros(len(rows))
    if next_function is not None:
        v_t = next_function.best(rows.next_observation)
    if v_t.shape != rows.reward.shape:  # broadcasting would hide a missing axis
        raise ValueError(f"expected one value a row, got {v_t.shape} for {rows.reward.shape}")
    return np.clip(rows.reward + rows.discount * v_t, *config.value_range)


def online_residual(functions: Sequence[ValueFunction], batch: Batch, config: HyQConfig) -> float:
    """Return the root mean squared Bellman residual of f on one batch of online tuples."""
    squares = 0.0
    for f, next_function, rows in zip(functions, [*functions[1:], None], batch, strict=True):
        error = f.at(rows.observation, rows.action) - regression_target(rows, next_function, config)
        squares += float(np.square(error).sum())
    return float(np.sqrt(squares / max(sum(map(len, batch)), 1)))
