"""C_pi and the relative condition number of a policy, estimated from samples, with intervals.

For one step: n logged pairs give the covariance of nu_h, N episodes of the policy give d_h.
Plugging both in overstates the two numbers, because the inverse of a noisy covariance is too large
and the square of a noisy mean is too large. A delete-a-group jackknife over `FOLDS` groups of
logged episodes corrects the first and measures its spread; leaving out the pairs of equal visits (a
U-statistic) corrects the second. Steps share their episodes, so spreads are of sums over steps.

Episodes may end early. Features are zero after that, where there is no residual: d_h and nu_h then
have a mass below one, which is the share of episodes that come so far.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.linalg import cho_factor, solve_triangular

from hyq.core.types import BoolArray, FloatArray, IntArray

FOLDS = 10
_RANGE = 1e-9
"""Eigenvalues below this share of the largest are directions the data does not have."""
_OUTSIDE = 1e-4
"""A visit with more than this share of its length in such directions is outside the data."""
NORMAL_95 = 1.959964
MOST_DIGITS = 6
_STUDENT = 2.262157 / NORMAL_95
"""A std from ten folds has nine degrees of freedom, which an interval has to make up for."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, std: float) -> "Interval":
        """Take a value and its standard deviation; no coverage number is negative."""
        if not math.isfinite(value):
            return cls(value, value, value)
        low, high = value - NORMAL_95 * std, value + NORMAL_95 * std
        return cls(value, max(low, 0.0), max(high, 0.0))

    def shown(self, digits: int) -> list[str]:
        """Return value and bounds with so many digits, or more where the bounds look the same."""
        text = [f"{number:.{digits}g}" for number in (self.value, self.low, self.high)]
        if text[1] == text[2] and digits < MOST_DIGITS and self.low < self.high:
            return self.shown(digits + 1)
        return text


@dataclass(frozen=True)
class StepCoverage:
    """How the data of one step covers the policy's visits.

    A first axis of length `FOLDS` + 1 holds numbers from all data, then without each fold. Norms
    are those of the data's inverse covariance. An episode that has ended or is outside the span of
    the data's features counts as zero.
    """

    length: FloatArray
    """||phi||^2 for each of the policy's episodes, shape (FOLDS + 1, N)."""
    transfer: FloatArray
    """||E_d phi||^2."""
    alike: FloatArray
    """<phi, mean phi of the other episodes> for each episode: its mean is that of `transfer`."""
    visits: int
    """Episodes that have not ended."""
    outside: IntArray
    """Visits outside the span."""

    @property
    def condition(self) -> float:
        """E_d ||phi||^2, over the visits inside the span."""
        if self.outside[0] == self.visits:
            return math.inf
        estimates = self.length.mean(axis=1)
        # Where a fold holds all there is of something, the others have nothing to correct it by.
        lopsided = (self.outside[1:] > self.outside[0]).any()
        return float(estimates[0]) if lopsided else _jackknife(estimates)[0]

    @property
    def is_sure(self) -> bool:
        """Whether there are rows enough for a spread."""
        return math.isfinite(_jackknife(self.length.mean(axis=1))[1])


class Covariance:
    """The second moments of a step's logged features, by fold and `wanted` group."""

    def __init__(self, wanted: IntArray) -> None:
        self._wanted = wanted
        self._gram: dict[int, FloatArray] = {}

    def add(self, group: IntArray, rows: FloatArray, fold: IntArray) -> None:
        """Take features of logged pairs."""
        for g in self._wanted:
            mine = np.flatnonzero(group == g)
            if not len(mine):
                continue
            gram = self._gram.setdefault(int(g), np.zeros((FOLDS, *2 * rows.shape[1:])))
            picked, folds = rows[mine].astype(np.float64, copy=False), fold[mine]
            for k in range(FOLDS):
                part = picked[folds == k]
                gram[k] += part.T @ part

    def covers(
        self, group: IntArray, visits: FloatArray, episode: IntArray, num_episodes: int, most: int
    ) -> StepCoverage:
        """Compare with the policy's visits: their groups, features and episodes.

        `most` is the rows of the step that has most; others lack those of episodes that ended.
        """
        outside = np.ones((FOLDS + 1, len(visits)), dtype=bool)
        length = np.zeros((FOLDS + 1, num_episodes))
        alike = np.zeros(num_episodes)
        squares = np.zeros(FOLDS + 1)
        scale = _rows_left(most)
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
            if not len(mine) or not seen.any():
                continue
            # In coordinates in which the full covariance is the identity, each fold's is small.
            white = basis[:, seen] / np.sqrt(values[seen])
            points = rotated[within][:, seen] / np.sqrt(values[seen])
            without = np.eye(int(seen.sum())) - white.T @ gram @ white
            for k, matrix in enumerate([np.eye(int(seen.sum())), *without]):
                whitened, outside[k, mine] = _whiten(matrix, points)
                total = whitened.sum(axis=0)
                squares[k] += scale[k] * float(total @ total)
                length[k, episode[mine]] = scale[k] * np.square(whitened).sum(axis=1)
                if k == 0:
                    alike[episode[mine]] = scale[0] * (whitened @ total) - length[0, episode[mine]]
        pairs = (squares - length.sum(axis=1)) / max(num_episodes * (num_episodes - 1), 1)
        alike /= max(num_episodes - 1, 1)
        return StepCoverage(length, pairs, alike, len(visits), outside.sum(axis=1))


class Counts:
    """The same for features that are 1 in a group for each pair, as for tables: only counts."""

    def __init__(self, wanted: IntArray) -> None:
        self._wanted = wanted
        self._count = np.zeros((FOLDS, len(wanted)), dtype=np.int64)

    def add(self, group: IntArray, rows: FloatArray, fold: IntArray) -> None:
        """Take the groups of logged pairs; their features are all 1."""
        cells = len(self._wanted)
        place = np.minimum(np.searchsorted(self._wanted, group), cells - 1)
        kept = self._wanted[place] == group
        counted = np.bincount(fold[kept] * cells + place[kept], minlength=FOLDS * cells)
        self._count += counted.reshape(FOLDS, cells)

    def covers(
        self, group: IntArray, visits: FloatArray, episode: IntArray, num_episodes: int, most: int
    ) -> StepCoverage:
        """Compare with the policy's visits, as `Covariance.covers` does."""
        place = np.searchsorted(self._wanted, group)
        total = self._count.sum(axis=0)
        left = np.concatenate([total[None], total - self._count])
        each = np.where(left > 0, _rows_left(most)[:, None] / np.maximum(left, 1), 0.0)
        others = np.bincount(place, minlength=len(total)) - 1
        length, alike = np.zeros((FOLDS + 1, num_episodes)), np.zeros(num_episodes)
        length[:, episode] = each[:, place]
        alike[episode] = each[0, place] * others[place] / max(num_episodes - 1, 1)
        pairs = each[:, place] @ others[place] / max(num_episodes * (num_episodes - 1), 1)
        return StepCoverage(length, pairs, alike, len(visits), (left == 0)[:, place].sum(axis=1))


def _rows_left(rows: int) -> IntArray:
    """Count rows, all of them and without each fold."""
    return rows - np.array([0, *np.bincount(new_folds(rows), minlength=FOLDS)])


def new_folds(rows: int) -> IntArray:
    """Deal rows to folds in turn."""
    return np.arange(rows) % FOLDS


def next_folds(folds: IntArray, alive: BoolArray, rows: int) -> IntArray:
    """Return the folds of the `rows` of the next step, given those of a step.

    An episode stays in its fold if the number of rows shows that those which continue (all of them,
    if none is marked as ended) were logged in the order of the step before.
    """
    for kept in (folds[alive], folds):
        if len(kept) == rows:
            return kept
    return new_folds(rows)


def _whiten(matrix: FloatArray, points: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return points whose squared length is p' matrix^-1 p, zero and marked outside the range."""
    with suppress(np.linalg.LinAlgError):
        factor, _ = cho_factor(matrix, lower=True)
        if np.square(np.diag(factor)).min() > _RANGE:
            whitened: FloatArray = solve_triangular(factor, points.T, lower=True).T
            return whitened, np.zeros(len(points), dtype=bool)
    # The fold left out held all the data there is in some direction.
    values, basis = np.linalg.eigh(matrix)
    seen = values > _RANGE
    rotated = points @ basis
    lost = np.square(rotated[:, ~seen]).sum(axis=1) > _OUTSIDE * np.square(rotated).sum(axis=1)
    return np.where(lost[:, None], 0.0, rotated[:, seen] / np.sqrt(values[seen])), lost


def _jackknife(estimates: FloatArray) -> tuple[float, float]:
    """Return the bias-corrected estimate and its variance from (full, leave-one-out, ...).

    A correction by more than half is more than a jackknife can do: rows are then too few for so
    many features. The estimate stays as it is, too large rather than too small, and unsure.
    """
    full, rest = float(estimates[0]), estimates[1:]
    value = FOLDS * full - (FOLDS - 1) * float(rest.mean())
    if value < full / 2:
        return full, math.inf
    return value, (_STUDENT * jackknife_std(rest)) ** 2


def jackknife_std(without: FloatArray) -> float:
    """Return the standard deviation of an estimate, given it with each group left out."""
    return math.sqrt(len(without) - 1) * float(without.std())


def _worst_condition(steps: Sequence[StepCoverage]) -> Interval:
    """Estimate the largest condition number of all steps.

    The largest of many estimates is too large. That of the step which half of the data chooses, on
    the other half, is too small if anything, as another step may be worse. The value is in the
    middle, and the interval has room for both.
    """
    part = np.arange(steps[0].length.shape[1]) % FOLDS
    estimates = np.array(
        [
            [step.length[0].mean(), *(step.length[1 + k, part != k].mean() for k in range(FOLDS))]
            for step in steps
        ]
    )
    # What a tenth of the data and of the visits says is its pseudo-value: their mean is the
    # jackknife's estimate, and they are nearly independent.
    said = FOLDS * estimates[:, :1] - (FOLDS - 1) * estimates[:, 1:]
    halves = np.array(list(combinations(range(FOLDS), FOLDS // 2)))
    chosen = said[:, halves].mean(axis=2).argmax(axis=0)
    measured = float(said[chosen[:, None], halves[::-1]].mean())  # listed so, these are the others
    worst = said[said.mean(axis=1).argmax()]
    largest = float(worst.mean())
    spread = NORMAL_95 * _STUDENT * math.sqrt(float(worst.var(ddof=1)) / FOLDS)
    middle = (measured + largest) / 2
    return Interval(middle, max(measured - spread, 0.0), largest + spread)


@dataclass(frozen=True)
class PolicyCoverage:
    """How a dataset covers a policy in some features."""

    outside: float
    """Share of visits outside the data's span, over all steps."""
    transfer: Interval
    """C_pi of the linear class in these features."""
    condition: Interval
    """max_h E_{d_h} ||phi||^2: the paper's relative condition number."""

    @classmethod
    def of(cls, steps: Sequence[StepCoverage], tolerance: float = 0.01) -> "PolicyCoverage":
        """Add the steps up; with more than `tolerance` of visits outside, nothing bounds them.

        Nor does anything where a step that more than `tolerance` of the episodes reach has not one
        visit inside, however many steps there are.
        """
        episodes = len(steps[0].alike)
        visits = sum(step.visits for step in steps)
        outside = np.sum([step.outside for step in steps], axis=0) / visits
        unbounded = outside > tolerance
        for step in steps:
            if step.visits > tolerance * episodes:
                unbounded |= step.outside == step.visits
        if unbounded[0]:
            infinite = Interval.of(math.inf, 0.0)
            return cls(float(outside[0]), infinite, infinite)
        totals = np.sum([step.transfer for step in steps], axis=0)
        squared, variance = _jackknife(totals)
        # The variance of a U-statistic is about four times that of its first-order projection.
        variance += 4.0 * float(np.sum([step.alike for step in steps], axis=0).var()) / episodes
        condition = _worst_condition(steps)
        if unbounded.any():
            # One fold holds all there is of something: the rest cannot tell how sure that is.
            squared, variance = float(totals[0]), math.inf
        if unbounded.any() or not all(step.is_sure for step in steps):
            condition = Interval.of(max(float(s.length[0].mean()) for s in steps), math.inf)
        transfer = math.sqrt(max(squared, 0.0))
        # The delta method: the std of a root is the std over twice the root.
        std = math.sqrt(variance) / (2.0 * max(transfer, 1e-12))
        return cls(float(outside[0]), Interval.of(transfer, std), condition)
