"""Upper bounds on C_pi: the chain of the paper's appendix, with the factors it needs.

The appendix ("Bounds on transfer coefficient") starts from Jensen's inequality for each step but
then adds the steps up: (sum of H numbers)^2 <= H * sum of their squares. That H is missing in the
printed chain and in the one for linear models. Each bound here carries it; `printed` keeps what the
paper says, for the counterexamples.
"""

import math
from dataclasses import dataclass

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray
from hyq.theory.transfer import (
    check_pair,
    class_totals,
    density_ratio,
    feature_covariance,
    feature_mean,
    finite_transfer,
    inverse_norm,
    largest_ratio,
    linear_transfer,
    relative_spectrum,
    residual_terms,
    tabular_transfer,
)


@dataclass(frozen=True)
class TransferBounds:
    """C_pi and what bounds it, from the tightest to the loosest."""

    transfer: float
    """C_pi."""
    step_ratios: FloatArray
    """rho_h = max_f ||g_h||^2_{d_h} / ||g_h||^2_{nu_h}, one for each step."""
    squared_sum: float
    """max_f of sum_h ||g_h||^2_{d_h} / sum_h ||g_h||^2_{nu_h}."""
    density: float
    """sup_{h,s,a} d_h(s, a) / nu_h(s, a), never below one."""

    @property
    def squared_step(self) -> float:
        """max_h rho_h: the squared Bellman error ratio."""
        return float(self.step_ratios.max())

    def corrected(self) -> tuple[float, ...]:
        """Return a chain that never decreases: each entry bounds the one before it."""
        return (self.transfer, math.sqrt(float(self.step_ratios.sum())), *self._loose())

    def corrected_jointly(self) -> tuple[float, ...]:
        """Return the chain whose second entry, not comparable to the other's, has one f for all."""
        steps = len(self.step_ratios)
        return (self.transfer, math.sqrt(steps * self.squared_sum), *self._loose())

    def _loose(self) -> tuple[float, ...]:
        root = math.sqrt(len(self.step_ratios))
        return tuple(root * bound for bound in self.printed()[2:])

    def printed(self) -> tuple[float, ...]:
        """Return the paper's chain, which lacks the factor sqrt(H)."""
        squares = (self.squared_sum, self.squared_step, self.density)
        return (self.transfer, *map(math.sqrt, squares), self.density)


def tabular_bounds(occupancy: FloatArray, nu: FloatArray) -> TransferBounds:
    """Bound C_pi of all functions: residuals can be put on one pair, so all ratios coincide."""
    steps = density_ratio(occupancy, nu).max(axis=(1, 2))
    sup = float(steps.max())
    return TransferBounds(tabular_transfer(occupancy, nu), steps, sup, sup)


def linear_bounds(features: FloatArray, occupancy: FloatArray, nu: FloatArray) -> TransferBounds:
    """Bound C_pi of all linear functions of `features`, where they are closed under T."""
    relative = condition_numbers(features, occupancy, nu).largest
    return TransferBounds(
        linear_transfer(features, occupancy, nu),
        relative,
        float(relative.max()),
        float(density_ratio(occupancy, nu).max()),
    )


def finite_bounds(
    mdp: FiniteMDP, tables: FloatArray, occupancy: FloatArray, nu: FloatArray
) -> TransferBounds:
    """Bound C_pi of a finite product class `tables`, shape (H, K, S, A)."""
    square = residual_terms(mdp, tables, occupancy, 2)
    cost = residual_terms(mdp, tables, nu, 2)
    return TransferBounds(
        finite_transfer(mdp, tables, occupancy, nu),
        np.array([largest_ratio(*step) for step in zip(square, cost, strict=True)]),
        largest_ratio(class_totals(square), class_totals(cost)),
        float(density_ratio(occupancy, nu).max()),
    )


@dataclass(frozen=True)
class ConditionNumbers:
    """How well nu covers the features of pi, at each step."""

    trace: FloatArray
    """E_{d_h} ||phi||^2 in the norm of the inverse covariance of nu_h: the paper's number."""
    largest: FloatArray
    """max_w E_{d_h}<w, phi>^2 / E_{nu_h}<w, phi>^2: the relative condition number elsewhere."""

    def tight(self) -> float:
        """Bound C_pi in linear Bellman-complete models: sqrt(sum_h trace_h)."""
        return math.sqrt(float(self.trace.sum()))

    def bound(self) -> float:
        """Bound it by the worst step: sqrt(H max_h trace_h)."""
        return math.sqrt(len(self.trace) * float(self.trace.max()))

    def printed(self) -> float:
        """Return the paper's bound, which lacks the factor sqrt(H)."""
        return math.sqrt(float(self.trace.max()))


def condition_numbers(
    features: FloatArray, occupancy: FloatArray, nu: FloatArray
) -> ConditionNumbers:
    """Compare the feature covariances of pi and nu; inf where pi leaves the range of nu's."""
    check_pair(occupancy, nu)
    laws = (feature_covariance(features, law) for law in (occupancy, nu))
    spectra = [relative_spectrum(target, data) for target, data in zip(*laws, strict=True)]
    trace, largest = zip(*((values.sum(), values.max()) for values in spectra), strict=True)
    return ConditionNumbers(np.array(trace), np.array(largest))


@dataclass(frozen=True)
class LowRankBounds:
    """The bound on C_pi in low-rank MDPs, whose features phi* are unknown."""

    tight: float
    """sqrt(alpha (1 + sum_{h<H-1} ||E_{d_h} phi*||^2)): Cauchy-Schwarz over the steps."""
    summed: float
    """sqrt(alpha) (1 + sum_{h<H-1} E_{d_h} ||phi*||): what the paper's proof shows."""
    printed: float
    """The same with h up to H-1: what the paper states, one term more than needed."""
    alpha: float
    """max_{h,s,a} pi_h(a | s) / nu_h(a | s) over the states that the data visits."""


def low_rank_bounds(
    mdp: FiniteMDP, features: FloatArray, policy: FloatArray, nu: FloatArray
) -> LowRankBounds:
    """Bound C_pi, for any class, by how nu covers pi in the features phi* of the transitions.

    `nu` must come from trajectories: nu_0(s) = d_0(s) and nu_{h+1}(s') = E_{nu_h} P(s' | s, a).
    `features` must factorise the transitions: P_h(s' | s, a) = <phi*(s, a), mu*_h(s')>.
    """
    _check_factorises(mdp, features)
    state_law = nu.sum(axis=2)
    expected = [mdp.initial]
    expected += [np.tensordot(n, p, axes=2) for n, p in zip(nu, mdp.transition, strict=True)]
    if np.abs(state_law - np.array(expected[:-1])).max() > 1e-8:
        raise HyqError("the low-rank bound needs data from trajectories: nu is not an occupancy")
    visited = state_law > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        conditional = nu / state_law[:, :, None]
        ratio = np.where(policy > 0, policy / conditional, 0.0)
    alpha = float(ratio[visited].max())
    occupancy = mdp.occupancy(policy)
    covariance = feature_covariance(features, nu)
    means = feature_mean(features, occupancy)
    tight = [inverse_norm(m, c) for m, c in zip(means, covariance, strict=True)]
    lengths = [_expected_length(features, d, c) for d, c in zip(occupancy, covariance, strict=True)]
    root = math.sqrt(alpha)
    return LowRankBounds(
        root * math.sqrt(1.0 + sum(tight[:-1])),
        root * (1.0 + sum(lengths[:-1])),
        root * (1.0 + sum(lengths)),
        alpha,
    )


def _check_factorises(mdp: FiniteMDP, features: FloatArray) -> None:
    """Raise unless every P_h(s' | ., .) that a step h < H - 1 uses is linear in `features`."""
    if mdp.horizon == 1:
        return
    phi = features.reshape(-1, features.shape[-1])
    rows = np.moveaxis(mdp.transition[:-1], 0, 2).reshape(len(phi), -1)
    error = np.abs(phi @ np.linalg.lstsq(phi, rows, rcond=None)[0] - rows).max()
    if error > 1e-8:
        raise HyqError(
            f"the low-rank bound needs features that factorise the transitions: no <phi, mu> is "
            f"within {error:.2g} of them"
        )


def _expected_length(features: FloatArray, occupancy: FloatArray, covariance: FloatArray) -> float:
    """Return E_{d_h} ||phi||, in the norm of the inverse of `covariance`."""
    pairs = occupancy > 0
    lengths = [math.sqrt(inverse_norm(phi, covariance)) for phi in features[pairs]]
    return float(occupancy[pairs] @ lengths)
