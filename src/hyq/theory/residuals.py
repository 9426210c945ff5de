"""Finite function classes as arrays, and the Bellman residuals of everything in them.

Two shapes occur. A *joint* class is a list of whole functions f = (f_0, ..., f_{H-1}), shape
(K, H, S, A). A *product* class F_0 x ... x F_{H-1} gives K choices at every step, shape
(H, K, S, A), and so contains K^H functions; the paper's classes are products.
"""

from itertools import product as cartesian

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray, IntArray

_ENUMERABLE = 100_000


def bellman_residuals(mdp: FiniteMDP, f: FloatArray) -> FloatArray:
    """Return T f_{h+1} - f_h for one function or a joint class, shape (..., H, S, A)."""
    _check_tables(mdp, f, steps_axis=-3)
    best = np.concatenate([f[..., 1:, :, :].max(axis=-1), np.zeros_like(f[..., :1, :, 0])], axis=-2)
    backup = mdp.reward + np.einsum("hsat,...ht->...hsa", mdp.transition, best)
    return backup - f


def pairwise_residuals(mdp: FiniteMDP, tables: FloatArray) -> list[FloatArray]:
    """Return, for every step h of a product class, T f_{h+1} - f_h for all pairs.

    Entry h has shape (K_next, K, S, A), with K_next = 1 on the last step, where f_H = 0.
    """
    _check_tables(mdp, tables, steps_axis=0)
    pairs = []
    for h in range(mdp.horizon):
        if h + 1 < mdp.horizon:
            backups = np.array([mdp.bellman(h, f_next) for f_next in tables[h + 1]])
        else:
            backups = mdp.bellman(h, None)[None]
        pairs.append(backups[:, None] - tables[h][None])
    return pairs


def enumerate_product(tables: FloatArray) -> FloatArray:
    """Write a product class out as a joint one; only small ones can be."""
    horizon, members = tables.shape[:2]
    if members**horizon > _ENUMERABLE:
        raise HyqError(f"a class of {members}^{horizon} functions is too large to enumerate")
    choices: IntArray = np.array(list(cartesian(range(members), repeat=horizon)))
    return tables[np.arange(horizon), choices]


def _check_tables(mdp: FiniteMDP, tables: FloatArray, steps_axis: int) -> None:
    if (
        tables.ndim < 3
        or tables.shape[-2:] != mdp.reward.shape[1:]
        or tables.shape[steps_axis] != mdp.horizon
    ):
        raise HyqError(
            f"functions must cover {mdp.reward.shape} (steps, states, actions), "
            f"got an array of shape {tables.shape}"
        )
