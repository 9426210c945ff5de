"""Fitted Q evaluation: the return of a policy, from logged data alone, with an interval.

    q_H = 0
    for h = H-1, ..., 0:   q_h <- argmin over F_h of  E_data (q(s, a) - r - q_{h+1}(s', pi(s')))^2
    value = E_{logged first states} q_0(s, pi(s))

The interval comes from doing it again on rows drawn with replacement within each step. Given (s,
a), the noise of r and s' at different steps is uncorrelated, so drawing the steps independently has
the right variance even where rows are parts of whole episodes. What no resampling can show is what
the data never visits: `inside` falls short of 1 there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import check_range
from hyq.core.types import Array, FloatArray, IntArray
from hyq.coverage.estimate import NORMAL_95, Interval
from hyq.coverage.policy import load_policy
from hyq.coverage.scan import is_index
from hyq.data.dataset import Dataset
from hyq.data.steps import StepView
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.mlp import MLPFunction

LEAST_INSIDE = 0.99
_RIDGE = 1e-6
"""In rows of average size: it decides only what the data does not."""


Features = Callable[[int, Array, Array], tuple[IntArray, FloatArray]]
"""Values are linear in phi(s, a) = e_g ⊗ psi: returns the groups g of pairs (s, a) at a step, and
rows psi (n, width). A group is an action; where observations are indices it is a pair of both, and
psi has no column: values are then constant in a group."""


def features_for(policy: GreedyPolicy, view: StepView, actions: Sequence[Array]) -> Features:
    """Build the map that a policy's own values are linear in, for pairs with these actions too."""
    if isinstance(policy.functions[0], MLPFunction | BlockFunction):
        return partial(_last_layer, policy)
    first = view.rows(slice(0, 1))
    if not is_index(first.observation):
        # Linear MDPs of this project observe the matrix phi(s, .): the features are given.
        return lambda h, s, a: (np.zeros(len(a), np.int64), s[np.arange(len(a)), a])
    rows = view.transitions
    states = 1 + max(int(column.max()) for column in (rows.observation, rows.next_observation))
    if states * (1 + max(int(c.max()) for c in (view.action, *actions))) >= 2**63:
        raise HyqError(
            f"states go up to {states - 1}: number them from 0 on, or log what they look like"
        )
    # One-hot features have a diagonal covariance: as groups of one they need no matrix.
    return lambda h, s, a: (a.astype(np.int64) * states + s.astype(np.int64), np.ones((len(s), 0)))


def _last_layer(
    policy: GreedyPolicy, h: int, observation: Array, action: Array
) -> tuple[IntArray, FloatArray]:
    """Return the last layer of a policy's network, or the code of its encoder."""
    function, group = policy.functions[h], action.astype(np.int64)
    if isinstance(function, BlockFunction):
        return group, np.eye(len(function.head))[function.latent(observation)]
    assert isinstance(function, MLPFunction)
    rows = function.hidden(observation)
    return group, np.concatenate([rows, np.ones((len(rows), 1), rows.dtype)], axis=1)


@dataclass(frozen=True)
class Evaluation:
    """The value of a policy, estimated from data."""

    value: Interval
    replicates: FloatArray
    """Values on resampled data."""
    agreement: float
    """Share of logged transitions on which the policy would have acted as logged."""
    inside: float
    """Share of its time that the policy stays where data is."""
    doubts: tuple[str, ...]
    """Why the data does not support the estimate; empty where nothing speaks against it."""


def evaluate_saved(
    policy: Path,
    data: Path,
    *,
    replicates: int = 100,
    seed: int = 0,
) -> Evaluation:
    """Evaluate the policy saved in one directory on the dataset in another.

    Values are linear in what the policy's own are: its network's last layer, where it has one. They
    are kept within what the logged rewards can add up to.
    """
    check_range("replicates", replicates, 2)
    saved, dataset = load_policy(policy), Dataset.load(data).by_step()
    if saved.horizon != dataset.horizon:
        raise HyqError(f"the policy knows {saved.horizon} steps, the dataset has {dataset.horizon}")
    if not is_index(dataset.action):
        raise HyqError("fitted Q evaluation of saved policies needs discrete actions")
    own = _own_actions(saved, dataset)
    features = features_for(saved, dataset, [taken for pair in own for taken in pair])
    plain, inside, *drawn = _values(dataset, features, own, replicates, Streams(seed))
    inside = min(max(inside, 0.0), 1.0)
    doubts: tuple[str, ...] = ()
    if inside < LEAST_INSIDE:
        doubts = (
            "the policy leaves what was logged, where values count as 0 (see 'hyq data check')",
        )
    margin = NORMAL_95 * float(np.std(drawn, ddof=1))
    agreed = sum(int((own[h][0] == dataset.at(h).action).sum()) for h in range(dataset.horizon))
    value = Interval(plain, plain - margin, plain + margin)
    return Evaluation(value, np.array(drawn), agreed / len(dataset), inside, doubts)


def _possible_returns(dataset: StepView) -> tuple[float, float]:
    """Add up the smallest and the largest reward of every step; an episode may end before one."""
    rewards = [dataset.at(h).reward for h in range(dataset.horizon)]
    least = sum(float(reward.min(initial=0.0)) for reward in rewards)
    return least, sum(float(reward.max(initial=0.0)) for reward in rewards)


def _own_actions(policy: GreedyPolicy, dataset: StepView) -> list[tuple[Array, Array]]:
    """Return what the policy does at the observations of each step, and at the next ones."""
    actions = []
    try:
        for h in range(dataset.horizon):
            rows = dataset.at(h)
            if not len(rows):
                raise HyqError(f"the dataset has no transition at step {h}: log all steps")
            own = policy(h, rows.observation)
            last = h + 1 == dataset.horizon
            actions.append((own, own if last else policy(h + 1, rows.next_observation)))
    except (IndexError, ValueError, RuntimeError) as error:  # as NumPy and PyTorch say it
        raise HyqError(f"the policy does not fit the data: {error}") from None
    return actions


def _values(
    dataset: StepView,
    features: Features,
    own: list[tuple[Array, Array]],
    replicates: int,
    streams: Streams,
) -> list[float]:
    """Regress backwards; return the value, that of the constant 1, and values on resamples.

    Values are 0 where the features have no data, so that the evaluation of the constant 1 falls
    short of 1 by what is lost on the way: it is the chance that the policy stays inside the data.
    """
    rng, possible = streams.generator("bootstrap"), _possible_returns(dataset)
    functions: _Functions | None = None
    for h in reversed(range(dataset.horizon)):
        rows = dataset.at(h)
        n, discount = len(rows), rows.discount.astype(np.float64)
        count = np.ones((replicates + 2, n))
        count[2:] = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(replicates)]
        ahead: FloatArray = np.zeros(count.shape)
        ahead[1] = 1.0
        if functions is not None:
            ahead = functions(*features(h + 1, rows.next_observation, own[h][1]))
        target = np.clip(rows.reward.astype(np.float64) + discount * ahead, *possible)
        target[1] = 1.0 - discount + discount * ahead[1]
        functions = _Functions.regress(*features(h, rows.observation, rows.action), target, count)
    assert functions is not None
    values = functions(*features(0, dataset.at(0).observation, own[0][0]))
    return [float(weight @ v / weight.sum()) for weight, v in zip(count, values, strict=True)]


@dataclass(frozen=True)
class _Functions:
    """The fitted functions of one step, one for each of several targets."""

    groups: IntArray
    """Groups with data, sorted."""
    weights: FloatArray
    """Shape (targets, groups + 1, width); the last are zero, for groups without data."""

    @classmethod
    def regress(
        cls, group: IntArray, psi: FloatArray, target: FloatArray, count: FloatArray
    ) -> "_Functions":
        """Solve a least-squares problem for each group and target, whose rows count `count`."""
        groups, place = np.unique(group, return_inverse=True)
        size = len(groups)
        weights = np.zeros((len(target), size + 1, max(psi.shape[1], 1)))
        if not psi.shape[1]:  # the mean of each cell
            for solution, y, weight in zip(weights, target, count, strict=True):
                rows, total = (np.bincount(place, w, size + 1) for w in (weight, weight * y))
                np.divide(total, rows, out=solution[:, 0], where=rows > 0)
            return cls(groups, weights)
        for g in range(size):
            mine = np.flatnonzero(place == g)
            x = psi[mine].astype(np.float64)
            for solution, y, weight in zip(weights, target[:, mine], count[:, mine], strict=True):
                scaled = x * weight[:, None]
                gram = scaled.T @ x
                scale = float(np.trace(gram)) / len(gram)
                if scale > 0:
                    gram[np.diag_indices_from(gram)] += _RIDGE * scale / max(weight.sum(), 1.0)
                    solution[g] = np.linalg.solve(gram, scaled.T @ y)
        return cls(groups, weights)

    def __call__(self, group: IntArray, psi: FloatArray) -> FloatArray:
        place = np.minimum(np.searchsorted(self.groups, group), len(self.groups) - 1)
        place = np.where(self.groups[place] == group, place, len(self.groups))
        if not psi.shape[1]:
            return self.weights[:, place, 0]
        return np.stack([np.einsum("ij,ij->i", psi, weights[place]) for weights in self.weights])
