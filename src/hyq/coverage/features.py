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

FeatureKind = Literal["raw", "fourier", "network"]

WIDEST_RAW = 256
FOURIER_WIDTH = 64


@dataclass(frozen=True)
class Features:
    """A feature map; `psi` returns a row (n, width) for each pair at step h."""

    kind: FeatureKind
    groups: int
    width: int
    psi: Callable[[int, Array, Array], FloatArray]
    discrete: bool
    """Whether groups are actions; otherwise there is one group and psi sees the action."""
    states: int = 0
    """Where observations are indices, their number: a group is then a pair, and psi is 1."""

    def __call__(self, h: int, observation: Array, action: Array) -> tuple[IntArray, FloatArray]:
        """Return the group of every row, and its psi."""
        rows = self.psi(h, observation, action)
        group = np.asarray(action, dtype=np.int64) if self.discrete else np.zeros(len(rows), int)
        if self.states:
            group = group * self.states + observation.astype(np.int64)
        return group, rows


def check_pairs(states: int, actions: int) -> None:
    """Raise for more pairs of a state and an action than there are numbers for."""
    if states * actions >= 2**63:
        raise HyqError(
            f"states go up to {states - 1}: number them from 0 on, or log what they look like"
        )


PILOT = 1000
"""Rows of a dataset that features are scaled by."""


def features_for(
    kind: FeatureKind,
    view: StepView,
    observations: Sequence[Array],
    actions: Sequence[Array],
    rng: np.random.Generator,
    policy: GreedyPolicy | None,
) -> Features:
    """Build a map for a dataset's pairs, and for others with these observations and actions."""
    pilot = view.rows(np.unique(np.linspace(0, len(view) - 1, PILOT).astype(np.int64)))
    count = states = 0
    if is_index(pilot.action):
        count = 1 + max(int(column.max()) for column in (view.action, *actions))
    if is_index(pilot.observation):
        if not count:
            raise HyqError("observations that are indices of states need actions that are, too")
        rows = view.transitions
        seen = (rows.observation, rows.next_observation, *observations)
        states = 1 + max(int(column.max()) for column in seen)
        check_pairs(states, count)
    return choose_features(kind, pilot.observation, pilot.action, count, states, rng, policy)


def choose_features(
    kind: FeatureKind,
    observation: Array,
    action: Array,
    actions: int,
    states: int,
    rng: np.random.Generator,
    policy: GreedyPolicy | None,
) -> Features:
    """Build a map from a pilot sample of pairs.

    `actions` counts discrete actions (0 if they are vectors), `states` integer observations.
    """
    if kind == "network":
        return _network(policy, actions)
    if observation.ndim == 3 and actions and observation.shape[1] == actions:
        # Linear MDPs of this project observe the matrix phi(s, .): the features are given.
        return Features(kind, 1, observation.shape[2], _own_row, discrete=False)
    if observation.ndim == 1 and np.issubdtype(observation.dtype, np.integer):
        # One-hot features have a diagonal covariance: as groups of one they need no matrix.
        return Features(
            kind,
            (actions or 1) * states,
            1,
            lambda h, s, a: np.ones((len(s), 1)),
            bool(actions),
            states,
        )
    flat = _flatten(observation, action, bool(actions))
    if kind == "fourier":
        scale = _median_distance(flat, rng)
        direction = rng.standard_normal((flat.shape[1], FOURIER_WIDTH)) / scale
        phase = rng.uniform(0, 2 * math.pi, FOURIER_WIDTH)

        def waves(h: int, s: Array, a: Array) -> FloatArray:
            angle = _flatten(s, a, bool(actions)) @ direction + phase
            return _with_constant(np.cos(angle) * math.sqrt(2.0))

        return Features(kind, actions or 1, FOURIER_WIDTH + 1, waves, bool(actions))
    if kind != "raw":
        raise HyqError(f"features are 'raw', 'fourier' or 'network', got {kind!r}")
    width = min(flat.shape[1], WIDEST_RAW)
    project = None
    if width < flat.shape[1]:
        project = rng.standard_normal((flat.shape[1], width)) / math.sqrt(flat.shape[1])

    def raw(h: int, s: Array, a: Array) -> FloatArray:
        x = _flatten(s, a, bool(actions))
        return _with_constant(x if project is None else x @ project)

    return Features(kind, actions or 1, width + 1, raw, bool(actions))


def fitting_features(policy: GreedyPolicy) -> FeatureKind:
    """Return the features that a policy's values were linear in, as far as they are known."""
    first = policy.functions[0]
    return "network" if isinstance(first, MLPFunction | BlockFunction) else "raw"


def _network(policy: GreedyPolicy | None, actions: int) -> Features:
    if policy is None:
        raise HyqError("network features are a policy's last layer: name one with --policy")
    functions = policy.functions
    first = functions[0]
    if isinstance(first, BlockFunction):
        latents = first.encoder.shape[1]

        def code(h: int, s: Array, a: Array) -> FloatArray:
            function = functions[h]
            assert isinstance(function, BlockFunction)
            return np.eye(latents)[(s @ function.encoder + function.bias).argmax(axis=1)]

        return Features("network", actions, latents, code, discrete=True)
    if isinstance(first, MLPFunction):

        def last_layer(h: int, s: Array, a: Array) -> FloatArray:
            function = functions[h]
            assert isinstance(function, MLPFunction)
            return _with_constant(function.hidden(s))

        return Features(
            "network", actions, first.layers[-1][0].shape[0] + 1, last_layer, discrete=True
        )
    raise HyqError("this policy has no network layer: choose raw or fourier features")


def _own_row(h: int, observation: Array, action: Array) -> FloatArray:
    rows: FloatArray = observation[np.arange(len(action)), action]
    return rows


def _flatten(observation: Array, action: Array, discrete: bool) -> FloatArray:
    flat = observation.reshape(len(observation), -1)
    if not discrete:
        flat = np.concatenate([flat, action.reshape(len(action), -1)], axis=1)
    return np.asarray(flat, dtype=np.float64 if flat.dtype == np.float64 else np.float32)


def _with_constant(rows: FloatArray) -> FloatArray:
    return np.concatenate([rows, np.ones((len(rows), 1), rows.dtype)], axis=1)


def _median_distance(rows: FloatArray, rng: np.random.Generator) -> float:
    """Return the median distance between random pairs, a bandwidth that fits any scale."""
    left, right = rng.permutation(len(rows)), rng.permutation(len(rows))
    distance = np.linalg.norm(rows[left] - rows[right], axis=1)
    positive = distance[distance > 0]
    return float(np.median(positive)) if len(positive) else 1.0
