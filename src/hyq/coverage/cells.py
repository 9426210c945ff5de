"""How well logged episodes cover the best of them, or a policy: C_pi over cells and actions.

Whole episodes of images have no step to regress at and no features to be linear in. Cells stand
in for both: observations that look alike share one. With an indicator of each (cell, action) as
features, C_pi of the policy behind the best episodes, whose visits are distributed as d where the
data's are as nu, is

    C = sqrt(sum_x d(x)^2 / nu(x)),

which is 1 for data of the policy's own and sqrt(1 / p) for data of which only a share p is. Visits
come from two groups of the best episodes, which makes the square unbiased, and the data they are
compared with is without both groups. A policy's own episodes may take the place of the best.

The sum can only be over the x that this data has. The share of visits that it leaves out is
`unseen`: where cells are so fine that no two episodes meet, nothing is left of the sum and C is
near 0. C is smallest for data of the best episodes alone, but an agent also has to find out, by
steps of its own, that actions the data does not show are worse: their share is `untried`. Both
shares are of discounted visits, because an agent's episodes begin where the best begin, and reach
later places only when it has learned the earlier ones.
"""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.coverage.estimate import FOLDS, Interval, jackknife_std
from hyq.coverage.inspection import BEST_SHARE, THIN, UNSUPPORTED_LIMIT
from hyq.coverage.scan import is_index, row_hashes
from hyq.data.columns import Column, columns_digest, described, named, over_columns
from hyq.data.dataset import Dataset

BLOCKS = 12
"""An image is averaged to about so many blocks a side ..."""
SHADES = 8
"""... and its bytes to so many shades, much as Go-Explore does."""
BINS = 10
"""Bins of equal width that each number of a vector falls into."""
ACTION_BINS = 3
"""The same for vectors of actions, of which all that could be done is to be counted."""
OUTLIERS = 0.01
"""Share at either end that no bin is stretched for."""
PILOT_ROWS = 20_000
FEWEST_BEST = 3
"""Episodes that an estimate needs: two for the visits and one to compare them with."""
MOST_UNSEEN = 0.5
"""Share of unseen visits above which the rest says nothing about the whole."""
DISCOUNT = 0.99
"""What a visit counts for each step before it: the discount of deep Hy-Q unless it is set."""
ALIKE = 0.03
"""Shares of untried actions that differ by less do not tell datasets apart: on those that ship,
their standard errors are 0.002 to 0.013."""

Cells = Callable[[Any], IntArray]
"""Gives every row the number of its cell."""


@dataclass(frozen=True)
class Grid:
    """What observations and actions count as alike, the same for all datasets that are compared."""

    place: Cells
    action: Cells

    @classmethod
    def of(cls, datasets: Sequence[Dataset]) -> "Grid":
        """Choose cells for datasets of one kind."""
        kinds = {(one.action.shape[1:], one.action.dtype.kind) for one in datasets}
        if len(kinds) != 1 or len({described(one.observation) for one in datasets}) != 1:
            raise HyqError(
                "datasets can be compared when their observations and actions are of one shape "
                "and type"
            )
        parts = over_columns(
            lambda *columns: _cells(columns, BINS), *(one.observation for one in datasets)
        )

        def together(observation: Mapping[str, Array]) -> IntArray:
            return row_hashes(*(parts[key](observation[key]) for key in parts))

        place = together if isinstance(parts, Mapping) else parts
        actions = [one.action for one in datasets]
        if is_index(actions[0]):
            return cls(place, lambda action: action.astype(np.int64))
        return cls(place, _cells(actions, ACTION_BINS))


def _cells(columns: Sequence[Column], bins: int) -> Cells:
    """Make cells for columns of one shape and type: of images blocks, of vectors bins."""
    shape, dtype = columns[0].shape[1:], columns[0].dtype
    if dtype == np.uint8 and len(shape) >= 2:
        return _image_cells
    rows = max(PILOT_ROWS // len(columns), 1)
    picked = [np.asarray(one[:: max(1, len(one) // rows)], dtype=float) for one in columns]
    pilot = np.concatenate([part.reshape(len(part), -1) for part in picked])
    low, high = np.quantile(pilot, [OUTLIERS, 1 - OUTLIERS], axis=0)
    flat = low == high
    low, high = np.where(flat, pilot.min(axis=0), low), np.where(flat, pilot.max(axis=0), high)
    width = np.where(high > low, (high - low) / bins, 1.0)

    def vector_cells(rows: Array) -> IntArray:
        scaled = (rows.reshape(len(rows), -1) - low) / width
        return row_hashes(np.clip(scaled, 0, bins - 1).astype(np.uint8))

    return vector_cells


def _image_cells(images: Array) -> IntArray:
    if images.shape[-1] in (1, 3, 4) and images.ndim > 3:
        images = np.moveaxis(images, -1, 1)
    images = images.reshape(len(images), -1, *images.shape[-2:])
    height, width = images.shape[-2:]
    if min(height, width) >= 2 * BLOCKS:
        # Symbols on a small grid are cells already; larger images are averaged.
        side = min(height, width) // BLOCKS
        rows, columns = height // side, width // side
        inside = images[..., : rows * side, : columns * side]
        blocks = inside.reshape(*inside.shape[:2], rows, side, columns, side)
        images = (blocks.mean(axis=(3, 5), dtype=np.float32) // (256 // SHADES)).astype(np.uint8)
    return row_hashes(images)


@dataclass(frozen=True)
class CellData:
    """Episodes as the cells and actions that they visit."""

    name: str
    visits: tuple[IntArray, ...]
    """(Cell, action) of each transition, as one number, an array an episode."""
    places: tuple[IntArray, ...]
    """Its cell alone."""
    actions: IntArray
    """The different actions (or cells of actions) that were taken."""
    returns: FloatArray
    keys: tuple[str, ...]
    """What tells each episode from others, and finds it again in other datasets."""

    @classmethod
    def of(
        cls,
        name: str,
        dataset: Dataset,
        grid: Grid,
        progress: Callable[[int], None] = lambda rows: None,
        played: bool = False,
    ) -> "CellData":
        """Read the episodes once; where a policy has `played` them, copies count as different."""
        visits, places, actions = [], [], []
        keys: list[str] = []
        for episode in dataset:
            place = grid.place(over_columns(lambda column: column[:-1], episode.observation))
            action = grid.action(episode.action)
            places.append(place)
            visits.append(row_hashes(place, action))
            actions.append(np.unique(action))
            content = named("observation", episode.observation)
            content |= {"action": episode.action, "reward": episode.reward}
            keys.append(str(len(keys)) if played else columns_digest(content))
            progress(len(episode.action))
        taken = np.unique(np.concatenate(actions))
        return cls(name, tuple(visits), tuple(places), taken, dataset.returns(), tuple(keys))


@dataclass(frozen=True)
class Best:
    """The best tenth of the different episodes of some datasets, or a policy's own episodes."""

    visits: dict[str, IntArray]
    places: dict[str, IntArray]
    """The cells of these visits."""
    actions: int
    """How many different actions any of the datasets took."""
    mean_return: float
    pooled: int
    """Different episodes that they were chosen from."""
    policy: str | None = None
    """Name of the policy that played them, if it is not the datasets' own best."""

    @classmethod
    def of(cls, datasets: Sequence[CellData]) -> "Best":
        """Choose them; episodes that are as good as the last of them are taken too."""
        pool = {key: (data, i) for data in datasets for i, key in enumerate(data.keys)}
        returns = np.array([data.returns[i] for data, i in pool.values()])
        threshold = np.sort(returns)[-max(1, int(BEST_SHARE * len(returns)))]
        chosen = {key: at for key, at in pool.items() if at[0].returns[at[1]] >= threshold}
        visits = {key: data.visits[i] for key, (data, i) in chosen.items()}
        places = {key: data.places[i] for key, (data, i) in chosen.items()}
        mean = float(returns[returns >= threshold].mean())
        return cls(visits, places, _actions(datasets), mean, len(pool))

    @classmethod
    def played(cls, own: CellData, datasets: Sequence[CellData]) -> "Best":
        """Take all the episodes that a policy has played, to compare datasets with them."""
        visits = dict(zip(own.keys, own.visits, strict=True))
        places = dict(zip(own.keys, own.places, strict=True))
        mean = float(own.returns.mean())
        return cls(visits, places, _actions([own, *datasets]), mean, len(visits), own.name)


def _actions(datasets: Sequence[CellData]) -> int:
    return len(np.unique(np.concatenate([data.actions for data in datasets])))


@dataclass(frozen=True)
class CellCoverage:
    """How the data covers the best episodes."""

    name: str
    share: float
    """Of the data's transitions, those in the best episodes."""
    transfer: Interval
    """C over what other data has; NaN where the best episodes are too few to say."""
    unseen: float
    """Share of a best episode's discounted visits in a (cell, action) that no other data has."""
    untried: float
    """Share of all that could be done at these visits that no other data has tried."""
    without: FloatArray
    """C^2 with each group of the best episodes left out, for comparisons."""

    @property
    def known(self) -> bool:
        """Whether the best episodes are enough, and meet often enough, for an estimate."""
        meet = len(self.without) > 0 and bool((self.without > 0).all())
        return meet and self.unseen <= MOST_UNSEEN

    @property
    def covered(self) -> bool:
        """Whether C speaks for (nearly) all that the best episodes visit."""
        return self.known and self.unseen <= UNSUPPORTED_LIMIT


def cell_coverage(data: CellData, best: Best) -> CellCoverage:
    """Compare the data with the best episodes."""
    everything = np.concatenate([*data.visits, *best.visits.values()])
    names, example, numbered = np.unique(everything, return_index=True, return_inverse=True)
    place = np.concatenate([*data.places, *best.places.values()])[example]
    ends = np.cumsum([len(part) for part in (*data.visits, *best.visits.values())])
    parts = np.split(numbered, ends[:-1])
    wanted = dict(zip(best.visits, parts[len(data.visits) :], strict=True))

    def counted(rows: Sequence[IntArray], discount: float = 1.0) -> FloatArray:
        joined = np.concatenate([*rows, np.zeros(0, np.int64)])
        return np.bincount(joined, _discounted(rows, discount), len(names)).astype(float)

    def logged(keys: Container[str]) -> FloatArray:
        """Count what the data has of some episodes; copies count as often as they are there."""
        return counted([part for key, part in zip(data.keys, parts, strict=False) if key in keys])

    good = logged(wanted)
    others = logged(set(data.keys) - wanted.keys())
    share = float(good.sum() / (good.sum() + others.sum()))
    if len(wanted) < FEWEST_BEST:
        nothing = Interval(math.nan, math.nan, math.nan)
        return CellCoverage(data.name, share, nothing, math.nan, math.nan, np.zeros(0))
    keys = list(wanted)
    groups = [keys[start :: min(FOLDS, len(keys))] for start in range(min(FOLDS, len(keys)))]
    visits = [counted([wanted[key] for key in group]) for group in groups]
    early = [counted([wanted[key] for key in group], DISCOUNT) for group in groups]
    own = [logged(group) for group in groups]
    squares = np.full((len(groups), len(groups)), np.nan)
    unseen = []
    for a, b in combinations(range(len(groups)), 2):
        rest = others + _as_many(good, own[a] + own[b])
        seen: BoolArray = rest > 0
        d_a, d_b = visits[a] / visits[a].sum(), visits[b] / visits[b].sum()
        nu = rest / max(rest.sum(), 1.0)  # there may be no other data at all
        squares[a, b] = squares[b, a] = (d_a[seen] * d_b[seen] / nu[seen]).sum()
        unseen += [part[~seen].sum() / part.sum() for part in (early[a], early[b])]
    without = np.array(
        [np.nanmean(np.delete(np.delete(squares, g, 0), g, 1)) for g in range(len(groups))]
    )
    transfer = Interval.of(math.sqrt(np.nanmean(squares)), jackknife_std(np.sqrt(without)))
    untried = [
        _untried([best.places[key] for key in group], best.actions, place[good + others > of_group])
        for group, of_group in zip(groups, own, strict=True)
    ]
    return CellCoverage(
        data.name, share, transfer, float(np.mean(unseen)), float(np.mean(untried)), without
    )


def _untried(places: Sequence[IntArray], actions: int, tried: IntArray) -> float:
    """Return the share of all (place, action) not in the data, given the place of each that is."""
    cells, numbered = np.unique(np.concatenate(places), return_inverse=True)
    times = np.bincount(numbered, _discounted(places, DISCOUNT))
    at = np.minimum(np.searchsorted(cells, tried), len(cells) - 1)
    missing = actions - np.bincount(at[cells[at] == tried], minlength=len(cells))
    return float(times @ missing / (times.sum() * actions))


def _discounted(rows: Sequence[IntArray], discount: float) -> FloatArray:
    """Return what each visit of some episodes counts, in one line."""
    return np.concatenate([*(discount ** np.arange(len(row)) for row in rows), np.zeros(0)])


def _as_many(good: FloatArray, left_out: FloatArray) -> FloatArray:
    """Return the best episodes' visits without some of them, weighing as much as with them."""
    rest = good - left_out
    return rest * (good.sum() / rest.sum()) if rest.sum() else rest


@dataclass(frozen=True)
class Comparison:
    """One dataset compared with the next better one, on the same best episodes."""

    better: str
    worse: str
    factor: Interval
    """C^2 of the worse over that of the better: how many times the samples, as theory has it."""

    @property
    def is_tie(self) -> bool:
        """Whether the data does not tell which is better."""
        return self.factor.low <= 1.0


def ranked(found: Sequence[CellCoverage]) -> tuple[list[CellCoverage], list[Comparison]]:
    """Sort datasets, the easiest first, and compare neighbours.

    Those that cover the best episodes, more than hardly, come first: by what they leave untried,
    and where that is alike, by C. A sum that leaves more out is smaller, so the others follow by
    what they leave out, and last those about which nothing can be said.
    """

    def difficulty(one: CellCoverage) -> tuple[float, ...]:
        if not one.known:
            return (math.inf,)
        return 0.0 if one.covered else one.unseen, one.transfer.value

    def well(one: CellCoverage) -> bool:
        return one.covered and one.transfer.value <= THIN

    alike: list[list[CellCoverage]] = []
    for one in sorted(filter(well, found), key=lambda one: one.untried):
        if not alike or one.untried - alike[-1][0].untried >= ALIKE:
            alike.append([])
        alike[-1].append(one)
    order = [one for group in alike for one in sorted(group, key=difficulty)]
    order += sorted((one for one in found if not well(one)), key=difficulty)
    steps = []
    for better, worse in pairwise(order):
        if not (better.known and worse.known and worse.transfer.value >= better.transfer.value):
            continue  # where the order is not that of C, no ratio of them tells how much worse
        factor = (worse.transfer.value / better.transfer.value) ** 2
        # The groups are the same on both sides, so that what they share cancels.
        spread = jackknife_std(worse.without / better.without)
        steps.append(Comparison(better.name, worse.name, Interval.of(factor, spread)))
    return order, steps
