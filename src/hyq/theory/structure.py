"""The structural assumptions: bilinear rank and the Bellman eluder dimension, on small classes.

Both look at one matrix for every step: how large the Bellman residual of g is, on average, where
the greedy policy of f goes.
"""

from typing import Literal

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray, IntArray
from hyq.theory.transfer import bellman_residuals

Kind = Literal["q-type", "v-type"]

_MEASURES = 12
"""More measures than this make the subsets too many for the eluder dimension."""


def residual_matrices(mdp: FiniteMDP, joint: FloatArray, kind: Kind) -> FloatArray:
    """Return E[g_h - T g_{h+1}] for every step, policy of f and function g: shape (H, K, K).

    Q-type (the bilinear model): (s, a) is drawn from the policy of f. V-type: s is drawn from the
    policy of f and a from the policy of g. `joint` has shape (K, H, S, A).
    """
    residual = -bellman_residuals(mdp, joint)
    policies = np.array([mdp.greedy_policy(f) for f in joint])
    occupancies = np.array([mdp.occupancy(policy) for policy in policies])
    if kind == "q-type":
        matrices = np.einsum("fhsa,ghsa->hfg", occupancies, residual)
    else:
        own = (policies * residual).sum(axis=-1)
        matrices = np.einsum("fhs,ghs->hfg", occupancies.sum(axis=-1), own)
    return np.asarray(matrices)


def bilinear_rank(mdp: FiniteMDP, joint: FloatArray, kind: Kind, tolerance: float = 1e-8) -> int:
    """Return the largest rank over steps of the residual matrices.

    The definition only constrains |E[...]| = |<X, W>|, so signs are free and the true bilinear rank
    may be smaller; this is the rank that a factorisation proves.
    """
    matrices = residual_matrices(mdp, joint, kind)
    scale = max(1.0, float(np.abs(matrices).max()))
    return max(int(np.linalg.matrix_rank(m, tol=tolerance * scale)) for m in matrices)


def distributional_eluder(values: FloatArray, epsilon: float) -> int:
    """Return dim_DE: the longest sequence of measures, each epsilon'-independent of those before.

    `values` has shape (measures, functions) and holds E_mu[g]. A measure depends only on the *set*
    before it, so sets grow one measure at a time; an epsilon' matters only where some root of a sum
    of squares over a set of measures reaches it, so those are the ones to try.
    """
    if not epsilon > 0:
        raise HyqError(f"epsilon must be positive, got {epsilon}")
    rows = np.unique(np.abs(values), axis=0)
    count = len(rows)
    if count > _MEASURES:
        raise HyqError(f"{count} different measures are too many: at most {_MEASURES}")
    subsets = np.arange(1 << count)
    member = (subsets[:, None] >> np.arange(count)) & 1
    history = np.sqrt(member @ rows**2)
    candidates = np.unique(history[history > epsilon])
    candidates = candidates[candidates < rows.max(initial=0.0)]
    longest = 0
    for level in (epsilon, *candidates):
        usable = np.flatnonzero((rows > level).any(axis=1))
        if len(usable) > longest:
            longest = max(longest, _longest_sequence(rows, history, usable, float(level)))
    return longest


def _longest_sequence(rows: FloatArray, history: FloatArray, usable: IntArray, level: float) -> int:
    """Grow all reachable sets of measures, one measure a round."""
    quiet = history <= level
    loud = rows > level
    frontier, length = {0}, 0
    while frontier:
        grown = {
            subset | (1 << int(i))
            for subset in frontier
            for i in usable
            if not subset >> int(i) & 1 and (quiet[subset] & loud[i]).any()
        }
        length += bool(grown)
        frontier = grown
    return length


def bellman_eluder_dimension(mdp: FiniteMDP, joint: FloatArray, epsilon: float) -> int:
    """Return dim_BE: the largest eluder dimension over steps of the residuals of `joint`.

    The measures are the occupancies of the greedy policies of the class.
    """
    matrices = residual_matrices(mdp, joint, "q-type")
    return max(distributional_eluder(matrix, epsilon) for matrix in matrices)
