"""Features in which coverage is measured: phi(s, a) = e_g(a) ⊗ psi_h(s, a).

A class that is linear in phi has one weight vector for each group g. With discrete actions a group
is an action, which keeps covariances block-diagonal: a hundred blocks of 129 x 129 instead of one
matrix of 12,900 x 12,900. Where observations are indices of states a group is a pair of both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray, IntArray
from hyq.coverage.scan import is_index
from hyq.data.steps import StepView
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.mlp import MLPFunction

FeatureKind = Literal["raw", "network"]

WIDEST_RAW = 256
PILOT = 1000
"""Rows of a dataset that features are scaled by."""


@dataclass(frozen=True)
class Features:
    """A feature map; `psi` returns a row (n, width) for each pair at step h."""

    psi: Callable[[int, Array, Array], FloatArray]
    discrete: bool
    """Whether groups are actions; otherwise there is one group and psi sees the action."""
    states: int = 0
    """Where observations are indices, their number: a group is then a pair, and psi is 1."""
    kind: FeatureKind = "raw"

    def __call__(self, h: int, observation: Array, action: Array) -> tuple[IntArray, FloatArray]:
        """Return the group of every row, and its psi."""
        rows = self.psi(h, observation, action)
        group = np.asarray(action, dtype=np.int64) if self.discrete else np.zeros(len(rows), int)
        if self.states:
            group = group * self.states + observation.astype(np.int64)
        return group, rows


def features_for(
    kind: FeatureKind | None,
    view: StepView,
    observations: Sequence[Array],
    actions: Sequence[Array],
    rng: np.random.Generator,
    policy: GreedyPolicy,
) -> Features:
    """Build a map for a dataset's pairs, and for others with these observations and actions.

    Where no kind is named it is the one that the policy's values were linear in.
    """
    pilot = view.rows(np.unique(np.linspace(0, len(view) - 1, PILOT).astype(np.int64)))
    discrete = is_index(pilot.action)
    count = 1 + max(int(column.max()) for column in (view.action, *actions)) if discrete else 0
    if (kind or fitting_features(policy)) == "network":
        return _network(policy)
    shape = pilot.observation.shape
    if len(shape) == 3 and discrete and shape[1] == count:
        # Linear MDPs of this project observe the matrix phi(s, .): the features are given.
        return Features(lambda h, s, a: s[np.arange(len(a)), a], discrete=False)
    if is_index(pilot.observation):
        if not discrete:
            raise HyqError("observations that are indices of states need actions that are, too")
        seen = (view.transitions.observation, view.transitions.next_observation, *observations)
        states = 1 + max(int(column.max()) for column in seen)
        if states * count >= 2**63:
            raise HyqError(
                f"states go up to {states - 1}: number them from 0 on, or log what they look like"
            )
        # One-hot features have a diagonal covariance: as groups of one they need no matrix.
        return Features(lambda h, s, a: np.ones((len(s), 1)), True, states)

    def flat(observation: Array, action: Array) -> FloatArray:
        rows = observation.reshape(len(observation), -1)
        if not discrete:
            rows = np.concatenate([rows, action.reshape(len(action), -1)], axis=1)
        return np.asarray(rows, dtype=np.float64 if rows.dtype == np.float64 else np.float32)

    sample = flat(pilot.observation, pilot.action)
    width = sample.shape[1]
    if width <= WIDEST_RAW:
        return Features(lambda h, s, a: _with_constant(flat(s, a)), discrete)
    project = rng.standard_normal((width, WIDEST_RAW)) / math.sqrt(width)
    return Features(lambda h, s, a: _with_constant(flat(s, a) @ project), discrete)


def fitting_features(policy: GreedyPolicy) -> FeatureKind:
    """Return the features that a policy's values were linear in, as far as they are known."""
    first = policy.functions[0] if policy.functions else None
    return "network" if isinstance(first, MLPFunction | BlockFunction) else "raw"


def _network(policy: GreedyPolicy) -> Features:
    """Return the last layer of a policy's network, or the code of its encoder."""
    if fitting_features(policy) != "network":
        raise HyqError("this policy has no network layer: choose raw features")

    def last_layer(h: int, s: Array, a: Array) -> FloatArray:
        function = policy.functions[h]
        if isinstance(function, BlockFunction):
            latents = function.encoder.shape[1]
            return np.eye(latents)[(s @ function.encoder + function.bias).argmax(axis=1)]
        assert isinstance(function, MLPFunction)
        return _with_constant(function.hidden(s))

    return Features(last_layer, discrete=True, kind="network")


def _with_constant(rows: FloatArray) -> FloatArray:
    return np.concatenate([rows, np.ones((len(rows), 1), rows.dtype)], axis=1)
