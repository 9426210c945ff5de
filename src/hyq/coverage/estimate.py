"""C_pi and the relative condition number of a policy, estimated from samples, with intervals.

For one step: n logged pairs give the covariance of nu_h, N visits of the policy give d_h. Plugging
both in overstates the two numbers, because the inverse of a noisy covariance is too large and the
square of a noisy mean is too large. A delete-a-group jackknife over `FOLDS` groups of rows mends
the first and measures its spread; leaving out the pairs of equal visits (a U-statistic) mends the
second.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, solve_triangular

from hyq.core.types import FloatArray, IntArray

FOLDS = 10
_RANGE = 1e-9
"""Eigenvalues below this share of the largest are directions the data does not have."""
_OUTSIDE = 1e-4
"""A visit with more than this share of its length in such directions is outside the data."""
NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, deviation: float) -> "Interval":
        """Take a value and its standard deviation; no coverage number is negative."""
        if not math.isfinite(value):
            return cls(value, value, value)
        low, high = value - NORMAL_95 * deviation, value + NORMAL_95 * deviation
        return cls(value, max(low, 0.0), max(high, 0.0))


@dataclass(frozen=True)
class StepCoverage:
    """How the data of one step covers the policy's visits."""

    condition: float
    """E_d ||phi||^2, over the visits inside the data's span."""
    condition_variance: float
    transfer: float
    """||E_d phi||^2, likewise."""
    transfer_variance: float
    outside: float
    """Share of visits outside the span of the data's features."""


class Covariance:
    """The second moments of a step's logged features, by fold and group; rows come in blocks."""

    def __init__(self, width: int) -> None:
        """Begin with nothing."""
        self._gram: dict[int, FloatArray] = {}
        self._width = width
        self.counts = np.zeros(FOLDS, dtype=np.int64)
        self._next = 0

    def add(self, group: IntArray, rows: FloatArray, wanted: IntArray) -> None:
        """Take features of logged pairs; only groups in `wanted` are needed."""
        fold = (self._next + np.arange(len(rows))) % FOLDS
        self._next += len(rows)
        self.counts += np.bincount(fold, minlength=FOLDS)
        for g in wanted:
            mine = np.flatnonzero(group == g)
            if not len(mine):
                continue
            gram = self._gram.setdefault(int(g), np.zeros((FOLDS, self._width, self._width)))
            picked, folds = rows[mine].astype(np.float64, copy=False), fold[mine]
            for k in range(FOLDS):
                part = picked[folds == k]
                gram[k] += part.T @ part

    def covers(self, group: IntArray, visits: FloatArray) -> StepCoverage:
        """Compare with the policy's visits, one row of features each."""
        count, total = len(visits), int(self.counts.sum())
        inside = np.zeros(count, dtype=bool)
        length = np.zeros((FOLDS + 1, count))
        mean = np.zeros(FOLDS + 1)
        shares = np.array([total, *(total - self.counts)], dtype=np.float64)
        for g in np.unique(group):
            mine = np.flatnonzero(group == g)
            if int(g) not in self._gram:
                continue
            gram = self._gram[int(g)]
            values, basis = np.linalg.eigh(gram.sum(axis=0))
            seen = values > _RANGE * max(float(values[-1]), 0.0)
            rotated = visits[mine].astype(np.float64) @ basis
            lost = np.square(rotated[:, ~seen]).sum(axis=1)
            mine = mine[within := lost <= _OUTSIDE * np.square(rotated).sum(axis=1)]
            inside[mine] = True
            if not len(mine) or not seen.any():
                continue
            # In coordinates in which the full covariance is the identity, each fold's is small.
            white = basis[:, seen] / np.sqrt(values[seen])
            points = rotated[within][:, seen] / np.sqrt(values[seen])
            without = np.eye(int(seen.sum())) - white.T @ gram @ white
            for k, matrix in enumerate([np.eye(int(seen.sum())), *without]):
                whitened = _whiten(matrix, points)
                length[k, mine] = shares[k] * np.square(whitened).sum(axis=1)
                mean[k] += shares[k] * float(np.square(whitened.sum(axis=0)).sum())
        outside = 1.0 - float(inside.mean())
        if not inside.any():
            return StepCoverage(math.inf, 0.0, math.inf, 0.0, outside)
        n = int(inside.sum())
        condition = length[:, inside].mean(axis=1)
        with np.errstate(invalid="ignore"):
            pairs = (mean - length.sum(axis=1)) / max(n * (n - 1), 1)
        value, spread = _jackknife(condition)
        transfer, transfer_spread = _jackknife(pairs)
        noise = float(length[0, inside].var()) / n
        # The variance of a U-statistic is about four times that of its first-order projection.
        projected = 4.0 * max(transfer, 0.0) * max(value - max(transfer, 0.0), 0.0) / n
        return StepCoverage(
            value, spread + noise, max(transfer, 0.0), transfer_spread + projected, outside
        )


def _whiten(matrix: FloatArray, points: FloatArray) -> FloatArray:
    """Return points whose squared length is p' matrix^-1 p; infinite outside the range."""
    with suppress(np.linalg.LinAlgError):
        factor, _ = cho_factor(matrix, lower=True)
        if np.square(np.diag(factor)).min() > _RANGE:
            whitened: FloatArray = solve_triangular(factor, points.T, lower=True).T
            return whitened
    # The fold left out held all the data there is in some direction.
    values, basis = np.linalg.eigh(matrix)
    seen = values > _RANGE
    rotated = points @ basis
    lost = np.square(rotated[:, ~seen]).sum(axis=1) > _OUTSIDE * np.square(rotated).sum(axis=1)
    return np.column_stack(
        [rotated[:, seen] / np.sqrt(values[seen]), np.where(lost, math.inf, 0.0)]
    )


def _jackknife(estimates: FloatArray) -> tuple[float, float]:
    """Return the bias-corrected estimate and its variance from (full, leave-one-out, ...)."""
    full, rest = float(estimates[0]), estimates[1:]
    if not np.isfinite(rest).all():
        return full, math.inf
    value = FOLDS * full - (FOLDS - 1) * float(rest.mean())
    variance = (FOLDS - 1) / FOLDS * float(np.square(rest - rest.mean()).sum())
    return value, variance


@dataclass(frozen=True)
class PolicyCoverage:
    """How a dataset covers a policy in some features."""

    steps: tuple[StepCoverage, ...]
    outside: float
    """Share of visits outside the data's span, over all steps."""
    transfer: Interval
    """C_pi of the linear class in these features."""
    condition: Interval
    """max_h E_{d_h} ||phi||^2: the paper's relative condition number."""

    @classmethod
    def of(cls, steps: list[StepCoverage], tolerance: float = 0.01) -> "PolicyCoverage":
        """Add the steps up; with more than `tolerance` of visits outside, nothing bounds them."""
        outside = float(np.mean([step.outside for step in steps]))
        squared = sum(step.transfer for step in steps)
        if outside > tolerance or not math.isfinite(squared):
            unbounded = Interval.of(math.inf, 0.0)
            return cls(tuple(steps), outside, unbounded, unbounded)
        variance = sum(step.transfer_variance for step in steps)
        transfer = math.sqrt(max(squared, 0.0))
        # The delta method: a root's deviation is the deviation over twice the root.
        deviation = math.sqrt(variance) / (2.0 * max(transfer, 1e-12))
        worst = max(steps, key=lambda step: step.condition)
        condition = Interval.of(worst.condition, math.sqrt(worst.condition_variance))
        return cls(tuple(steps), outside, Interval.of(transfer, deviation), condition)
