"""The Bellman error transfer coefficient C_pi, exactly (equation 2 of the paper).

For a policy pi with occupancy d and offline distributions nu,

    C_pi = max{0, max over f in F of  sum_h E_{d_h}[g_h] / sqrt(sum_h E_{nu_h}[g_h^2])},

where g_h = T f_{h+1} - f_h. We read it as the smallest C >= 0 with numerator <= C * denominator for
every f, which decides 0/0 (no constraint) and x/0 for x > 0 (C = inf).

T is a maximum, so f -> g is not linear; but it is one-to-one and onto. Given any g, the recursion
f_h = T f_{h+1} - g_h finds its f. Hence an unrestricted class that is closed under T has *all* its
differences as residuals, the problem is linear over quadratic, and Cauchy-Schwarz solves it. The
ratio does not depend on the scale of g, and small g belong to f near Q*, so a class that is merely
bounded has the same C_pi whenever Q* lies inside its bounds; docs/theory.md gives the argument, and
`hyq.theory.bounded` solves the case where it does not.

Finite classes are arrays. A *joint* class lists whole functions f = (f_0, ..., f_{H-1}), shape
(K, H, S, A). A *product* class F_0 x ... x F_{H-1} gives K choices at every step, shape (H, K, S,
A), and so contains K^H functions; the paper's classes are products.
"""

import math

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray

_RANK = 1e-10
"""Eigenvalues below this share of the largest count as zero."""
_ZERO = 1e-12
"""Squared residuals below this count as zero."""
_MOST_FUNCTIONS = 10_000_000


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
    for h, members in enumerate(tables):
        after = tables[h + 1] if h + 1 < mdp.horizon else [None]
        backups = np.array([mdp.bellman(h, f_next) for f_next in after])
        pairs.append(backups[:, None] - members)
    return pairs


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


def tabular_transfer(occupancy: FloatArray, nu: FloatArray) -> float:
    """C_pi of the class of all functions: sqrt(sum_h E_{d_h}[d_h / nu_h]), never below sqrt(H).

    It is infinite exactly when pi visits a pair (s, a) that nu never does.
    """
    check_pair(occupancy, nu)
    return math.sqrt(float((occupancy * density_ratio(occupancy, nu)).sum()))


def density_ratio(occupancy: FloatArray, nu: FloatArray) -> FloatArray:
    """Return d_h(s, a) / nu_h(s, a): 0 where pi never goes, inf where only pi goes."""
    visited = occupancy > 0
    ratio = np.zeros(occupancy.shape)
    with np.errstate(divide="ignore"):
        np.divide(occupancy, nu, out=ratio, where=visited)
    return ratio


def linear_transfer(features: FloatArray, occupancy: FloatArray, nu: FloatArray) -> float:
    """C_pi of all linear functions of `features`, where these are closed under T.

    The residuals are then all <u_h, phi>, and C_pi^2 = sum_h ||E_{d_h} phi||^2 in the norm of the
    inverse covariance of nu_h. A covariance may be singular: if the mean feature of pi leaves its
    range, some function that is zero on the data is not zero on pi, and C_pi = inf.
    """
    mean = feature_mean(features, occupancy)
    covariance = feature_covariance(features, nu)
    return math.sqrt(sum(inverse_norm(m, c) for m, c in zip(mean, covariance, strict=True)))


def feature_mean(features: FloatArray, distribution: FloatArray) -> FloatArray:
    """Return E[phi(s, a)] at every step, shape (H, d); `features` has shape (S, A, d)."""
    return np.einsum("hsa,sad->hd", distribution, features)


def feature_covariance(features: FloatArray, distribution: FloatArray) -> FloatArray:
    """Return E[phi phi'] at every step, shape (H, d, d)."""
    return np.einsum("hsa,sad,sae->hde", distribution, features, features)


def inverse_norm(vector: FloatArray, covariance: FloatArray) -> float:
    """Return v' Sigma^+ v, or inf if v is not in the range of Sigma."""
    return float(relative_spectrum(np.outer(vector, vector), covariance).sum())


def relative_spectrum(target: FloatArray, data: FloatArray) -> FloatArray:
    """Return the eigenvalues of `target` relative to `data`, both symmetric; inf if unseen."""
    values, basis = np.linalg.eigh(data)
    seen = values > _RANK * max(float(values[-1]), 0.0)
    rotated = basis.T @ target @ basis
    if np.diag(rotated)[~seen].sum() > _RANK * max(float(np.trace(target)), _ZERO):
        return np.array([math.inf])
    scale = np.sqrt(values[seen])
    return np.linalg.eigvalsh(rotated[np.ix_(seen, seen)] / np.outer(scale, scale))


def residual_terms(
    mdp: FiniteMDP, tables: FloatArray, law: FloatArray, power: int
) -> list[FloatArray]:
    """Return E_law[g_h^power] of a product class, shape (K_next, K) for every step."""
    pairs = zip(law, pairwise_residuals(mdp, tables), strict=True)
    return [np.einsum("sa,ijsa->ij", p, g**power) for p, g in pairs]


def class_totals(terms: list[FloatArray]) -> FloatArray:
    """Add terms in (f_{h+1}, f_h) up over the steps, for each of the K^H functions of a class."""
    if (count := terms[0].shape[1] ** len(terms)) > _MOST_FUNCTIONS:
        raise HyqError(f"a class of {count:,} functions is too large: at most {_MOST_FUNCTIONS:,}")
    total = np.zeros((1, 1))
    for term in reversed(terms):  # the last axis says which function the step before leads to
        total = (total[..., None] + term).reshape(-1, term.shape[1])
    return total.ravel()


def largest_ratio(numerator: FloatArray, denominator: FloatArray, zero: float = _ZERO) -> float:
    """Return the largest ratio, where 0/0 does not count and x/0 is infinite."""
    free = denominator <= zero
    if (numerator[free] > zero).any():
        return math.inf
    return float((numerator[~free] / denominator[~free]).max(initial=0.0))


def finite_transfer(
    mdp: FiniteMDP, tables: FloatArray, occupancy: FloatArray, nu: FloatArray
) -> float:
    """C_pi of a finite product class `tables`, shape (H, K, S, A), by trying every function."""
    check_pair(occupancy, nu)
    gain = class_totals(residual_terms(mdp, tables, occupancy, 1))
    cost = class_totals(residual_terms(mdp, tables, nu, 2))
    return largest_ratio(gain, np.sqrt(cost), math.sqrt(_ZERO))


def check_pair(occupancy: FloatArray, nu: FloatArray) -> None:
    """Raise unless both are distributions over (s, a) at the same steps."""
    if occupancy.shape != nu.shape or occupancy.ndim != 3:
        raise HyqError(
            f"occupancy and nu must both have shape (H, S, A), got {occupancy.shape} and {nu.shape}"
        )
    for name, array in (("occupancy", occupancy), ("nu", nu)):
        if (array < 0).any() or np.abs(array.sum(axis=(1, 2)) - 1).max() > 1e-6:
            raise HyqError(f"{name} must be a distribution over (s, a) at every step")
