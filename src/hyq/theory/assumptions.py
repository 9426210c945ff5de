"""Realizability and Bellman completeness, each with a witness when it fails (Assumption 1).

A bounded class that is the same at every step is never complete where every state has a reward: T
adds it to the largest value there is. What is complete is a range for every step, such as
`largest_returns`; docs/theory.md has the proof.
"""

import math
from dataclasses import dataclass

import numpy as np

from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray

_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Witness:
    """The worst place at which a class fails."""

    step: int
    state: int
    action: int
    gap: float
    """Distance there between what should be in the class and the nearest that is."""
    source: FloatArray
    """What should be in the class at `step`: Q*_h, or T f_{h+1}."""
    of: FloatArray | None
    """The f_{h+1} (or its weights) whose backup leaves the class; None for realizability."""
    reason: str

    def __str__(self) -> str:
        what = "Q*" if self.of is None else "T f"
        return (
            f"at step {self.step}, state {self.state}, action {self.action}: {what} is off by "
            f"{self.gap:.3g} ({self.reason})"
        )


def finite_realizability(mdp: FiniteMDP, tables: FloatArray) -> Witness | None:
    """Return None if Q*_h is in F_h for all h; `tables` has shape (H, K, S, A)."""
    return _worst([_nearest(q, tables[h], h, None) for h, q in enumerate(mdp.optimal_q())])


def finite_completeness(mdp: FiniteMDP, tables: FloatArray) -> Witness | None:
    """Return None if T f_{h+1} is in F_h for every f_{h+1} in F_{h+1} (f_H = 0 included)."""
    after = [*tables[1:], np.zeros_like(tables[0, :1])]
    steps = range(mdp.horizon)
    return _worst([_nearest(mdp.bellman(h, f), tables[h], h, f) for h in steps for f in after[h]])


def largest_returns(mdp: FiniteMDP, payoff: FloatArray) -> FloatArray:
    """Return the largest return that is possible from (s, a), shape (H, S, A).

    `payoff` >= 0 has the largest reward that (s, a) can pay: more than the mean where rewards are
    random. The tables between zero and this are closed under T, and no regression target
    r + max f_{h+1} leaves them.
    """
    top = np.array(payoff, dtype=np.float64)
    for h in reversed(range(mdp.horizon - 1)):
        reachable = np.where(mdp.transition[h] > 0, top[h + 1].max(axis=-1), 0.0)
        top[h] += reachable.max(axis=-1)
    return top


def range_completeness(mdp: FiniteMDP, top: FloatArray) -> Witness | None:
    """Return None if the tables with values in [0, top_h], of shape (H, S, A), are closed under T.

    T is monotone, so that its images of 0 and of `top` decide.
    """
    found: list[Witness | None] = []
    for h in range(mdp.horizon):
        for f in (np.zeros_like(top[h]), *top[h + 1 : h + 2]):
            backup = mdp.bellman(h, f)
            excess = np.maximum(backup - top[h], -backup)
            found.append(_witness(h, excess, backup, f, "it leaves the range of its step"))
    return _worst(found)


def linear_realizability(
    mdp: FiniteMDP, features: FloatArray, radius: float = math.inf
) -> Witness | None:
    """Return None if every Q*_h is <w, phi> for some ||w|| <= radius."""
    return _worst([_projected(q, features, radius, h, None) for h, q in enumerate(mdp.optimal_q())])


def linear_completeness(
    mdp: FiniteMDP,
    features: FloatArray,
    rng: np.random.Generator,
    radius: float = math.inf,
    draws: int = 200,
) -> Witness | None:
    """Look for ||w|| <= radius whose backup T <w, phi> is not in the class at some step.

    A witness proves a failure, and every finite radius has one where every state has a reward and
    there are two steps. None is evidence only: `draws` random directions, which find a failure that
    a few in `draws` of them have.
    """
    dimension = features.shape[-1]
    directions = rng.standard_normal((draws, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    scale = radius if math.isfinite(radius) else 1.0
    last = mdp.horizon - 1
    found = [_projected(mdp.bellman(last, None), features, radius, last, np.zeros(dimension))]
    for weights in (np.zeros(dimension), *(scale * directions)):
        f = features @ weights
        found += [_projected(mdp.bellman(h, f), features, radius, h, weights) for h in range(last)]
    return _worst(found)


def _nearest(
    source: FloatArray, members: FloatArray, h: int, of: FloatArray | None
) -> Witness | None:
    distance = np.abs(members - source)
    nearest = distance[distance.max(axis=(1, 2)).argmin()]
    return _witness(h, nearest, source, of, "no member is near")


def _projected(
    source: FloatArray, features: FloatArray, radius: float, h: int, of: FloatArray | None
) -> Witness | None:
    matrix = features.reshape(-1, features.shape[-1])
    weights = np.linalg.lstsq(matrix, source.ravel(), rcond=None)[0]
    error = np.abs(features @ weights - source)
    excess = float(np.linalg.norm(weights)) - radius
    too_long = f"its shortest weights are {excess:.3g} longer than B_W"
    return _witness(h, error, source, of, "not linear in the features") or _witness(
        h, np.full(source.shape, excess), source, of, too_long
    )


def _witness(
    h: int, gap: FloatArray, source: FloatArray, of: FloatArray | None, reason: str
) -> Witness | None:
    """Return the place of the largest gap, if that is one."""
    state, action = np.unravel_index(gap.argmax(), gap.shape)
    largest = float(gap[state, action])
    if largest <= _TOLERANCE:
        return None
    return Witness(h, int(state), int(action), largest, source, of, reason)


def _worst(found: list[Witness | None]) -> Witness | None:
    return max((w for w in found if w is not None), key=lambda w: w.gap, default=None)
