"""Fitted Q evaluation: what a policy would earn, from logged data alone, with an interval.

    q_H = 0
    for h = H-1, ..., 0:   q_h <- argmin over F_h of  E_data (q(s, a) - r - q_{h+1}(s', pi(s')))^2
    value = E_{logged first states} q_0(s, pi(s))

The interval comes from doing it again on rows drawn with replacement within each step. Given (s,
a), the noise of r and s' at different steps is uncorrelated, so drawing the steps independently has
the right variance even where rows are parts of whole episodes. What no resampling can show is what
the data never visits: see the share of unsupported visits in `hyq data inspect`.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray, IntArray
from hyq.coverage.estimate import NORMAL_95, Interval
from hyq.coverage.features import FeatureKind, Features, features_for, fitting_features
from hyq.coverage.policy import load_policy
from hyq.coverage.scan import is_index
from hyq.data.dataset import Dataset
from hyq.data.steps import StepView
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.rollout import Policy
from hyq.fqi.targets import optimality_target

_SHRINK = 1e-6
"""Ridge, in rows of average size: it decides only what the data does not."""


@dataclass(frozen=True)
class Evaluation:
    """The value of a policy, estimated from data."""

    value: Interval
    replicates: FloatArray
    """Values on resampled data."""
    agreement: float
    """Share of logged transitions on which the policy would have acted as logged."""
    supported: float
    """Fitted chance that the policy stays where the features have data; elsewhere values are 0.

    It is the evaluation of the constant 1, which falls short of 1 by what is lost on the way. Below
    0.99 the interval says nothing: resampling cannot invent what was never logged."""


def evaluate_saved(
    policy: Path,
    data: Path,
    *,
    features: FeatureKind | None = None,
    replicates: int = 100,
    seed: int = 0,
    value_range: tuple[float, float] | None = None,
) -> Evaluation:
    """Evaluate the policy saved in one directory on the dataset in another.

    By default values are linear in the last layer of the policy's network, where it has one, and
    kept within what the logged rewards can add up to.
    """
    saved, dataset = load_policy(policy), Dataset.load(data).by_step()
    if saved.horizon != dataset.horizon:
        raise HyqError(f"the policy knows {saved.horizon} steps, the dataset has {dataset.horizon}")
    if not is_index(dataset.action):
        raise HyqError("fitted Q evaluation of saved policies needs discrete actions")
    chosen = features_for(
        features or fitting_features(saved),
        dataset,
        [],
        _own_actions(saved, dataset),
        Streams(seed).generator("features"),
        saved,
    )
    return fitted_q_evaluation(
        dataset,
        saved,
        chosen,
        Streams(seed),
        replicates=replicates,
        value_range=value_range or _possible_returns(dataset),
    )


def _possible_returns(dataset: StepView) -> tuple[float, float]:
    """Add up the smallest and the largest reward of every step; an episode may end before one."""
    rewards = [dataset.at(h).reward for h in range(dataset.horizon)]
    least = sum(float(reward.min(initial=0.0)) for reward in rewards)
    return least, sum(float(reward.max(initial=0.0)) for reward in rewards)


def _own_actions(policy: GreedyPolicy, dataset: StepView) -> list[Array]:
    """Return the actions that the policy takes wherever an evaluation asks it."""
    actions = []
    try:
        for h in range(dataset.horizon):
            rows = dataset.at(h)
            actions.append(policy(h, rows.observation))
            if h + 1 < dataset.horizon:
                actions.append(policy(h + 1, rows.next_observation))
    except (IndexError, ValueError, RuntimeError) as error:  # as NumPy and PyTorch say it
        raise HyqError(f"the policy does not fit the data: {error}") from None
    return [taken for taken in actions if len(taken)]


def fitted_q_evaluation(
    dataset: StepView,
    policy: Policy,
    features: Features,
    streams: Streams,
    *,
    replicates: int = 100,
    value_range: tuple[float, float] = (-np.inf, np.inf),
) -> Evaluation:
    """Evaluate `policy` in the class of linear functions of `features`.

    Everything the replicates share is computed once: a replicate only weighs rows anew.
    """
    if replicates < 2:
        raise HyqError(f"an interval needs at least 2 replicates, got {replicates}")
    steps = [_Step.of(dataset, policy, features, h) for h in range(dataset.horizon)]
    plain = _value(steps, features, value_range, None)
    rng = streams.generator("bootstrap")
    drawn = np.array([_value(steps, features, value_range, rng) for _ in range(replicates)])
    spread = float(drawn.std(ddof=1))
    agree = sum(float(step.agrees.sum()) for step in steps) / len(dataset)
    value = Interval(plain, plain - NORMAL_95 * spread, plain + NORMAL_95 * spread)
    ones = [replace(step, reward=1.0 - step.discount, last_value=1.0) for step in steps]
    supported = min(max(_value(ones, features, (-np.inf, np.inf), None), 0.0), 1.0)
    return Evaluation(value, drawn, agree, supported)


@dataclass(frozen=True)
class _Step:
    """The rows of one step as a regression sees them."""

    groups: tuple[tuple[int, IntArray, FloatArray], ...]
    """For each group with rows: its index, which rows they are, and their features.

    Not for tables, whose groups are as many as their cells."""
    group: IntArray
    reward: FloatArray
    discount: FloatArray
    next_group: IntArray
    next_psi: FloatArray
    """Features of (s', pi(s')); empty on the last step."""
    own_group: IntArray
    own_psi: FloatArray
    """Features of (s, pi(s)) on the first step, where the value is read."""
    agrees: Array
    last_value: float = 0.0
    """What follows the last step."""

    @classmethod
    def of(cls, dataset: StepView, policy: Policy, features: Features, h: int) -> "_Step":
        """Compute all features of step `h` once."""
        rows = dataset.at(h)
        if not len(rows):
            raise HyqError(f"the dataset has no transition at step {h}: nothing says what follows")
        group, psi = features(h, rows.observation, rows.action)
        own = policy(h, rows.observation)
        nothing: tuple[IntArray, FloatArray] = (np.zeros(0, np.int64), np.zeros((0, 1)))
        ahead = first = nothing
        if h + 1 < dataset.horizon:
            taken = policy(h + 1, rows.next_observation)
            ahead = features(h + 1, rows.next_observation, taken)
        if h == 0:
            first = features(h, rows.observation, own)
        several = () if features.states else np.unique(group)
        rows_of = ((int(g), np.flatnonzero(group == g)) for g in several)
        return cls(
            groups=tuple((g, mine, psi[mine].astype(np.float64)) for g, mine in rows_of),
            group=group,
            reward=rows.reward.astype(np.float64),
            discount=rows.discount.astype(np.float64),
            next_group=ahead[0],
            next_psi=ahead[1],
            own_group=first[0],
            own_psi=first[1],
            agrees=np.asarray(own == rows.action),
        )


def _value(
    steps: list[_Step],
    features: Features,
    value_range: tuple[float, float],
    rng: np.random.Generator | None,
) -> float:
    """Regress backwards, on the rows as they are or on a resample, and read the value."""
    weights: FloatArray = np.zeros((features.groups, features.width))
    count: FloatArray = np.ones(0)
    for step in reversed(steps):
        n = len(step.reward)
        count = np.ones(n)
        if rng is not None:
            count = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        ahead: FloatArray = np.full(n, step.last_value)
        if len(step.next_psi):
            ahead = np.einsum("ij,ij->i", step.next_psi, weights[step.next_group])
        target = optimality_target(step.reward, step.discount, ahead, value_range)
        weights = _regress(step, target, count, features)
    first = steps[0]
    values = np.einsum("ij,ij->i", first.own_psi, weights[first.own_group])
    return float(count @ values / count.sum())


def _regress(step: _Step, target: FloatArray, count: FloatArray, features: Features) -> FloatArray:
    """Solve one least-squares problem for each group; a group without rows is zero."""
    weights = np.zeros((features.groups, features.width))
    if features.states:  # the mean of each cell
        rows = np.bincount(step.group, count, features.groups)
        total = np.bincount(step.group, count * target, features.groups)
        np.divide(total, rows, out=weights[:, 0], where=rows > 0)
    for g, mine, psi in step.groups:
        weight = count[mine]
        scaled = psi * weight[:, None]
        gram = scaled.T @ psi
        size = float(np.trace(gram)) / features.width
        if size > 0:
            gram[np.diag_indices_from(gram)] += _SHRINK * size / max(weight.sum(), 1.0)
            weights[g] = np.linalg.solve(gram, scaled.T @ target[mine])
    return weights
