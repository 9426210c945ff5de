"""Transitions as rows of numbers: which are near one another, and what follows them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from hyq.core.trees import without_tuples
from hyq.core.types import Array, BoolArray, Columns, FloatArray, IntArray
from hyq.coverage.scan import as_rows, by_group, by_key, is_index, number_names, row_hashes
from hyq.data.columns import Observation, over_columns
from hyq.data.dataset import Dataset

MOST_ROWS = 20_000
"""Logged rows that are read, in whole episodes."""
NEIGHBOURS, CANDIDATES = 8, 30
"""Rows whose successors are wanted, and rows that may match them."""
NEAR = 0.75
"""Share of logged rows that have one of another episode as near as a match has to be."""
WIDEST, PROJECTED = 256, 32
"""Observations with more numbers are projected at random to fewer."""
MOST_FEATURES = 200


@dataclass(frozen=True)
class Flat:
    """Turns observations into rows of numbers."""

    names: list[str]
    projection: FloatArray | None

    @classmethod
    def of(cls, dataset: Dataset, rng: np.random.Generator) -> "Flat":
        """Name the numbers of an observation, or choose a projection where there are many."""
        columns = by_key(dataset.observation)
        names = [number for key, c in columns.items() for number in number_names(key, c.shape[1:])]
        if len(names) <= WIDEST:
            return cls(names, None)
        project = rng.standard_normal((len(names), PROJECTED)) / math.sqrt(len(names))
        return cls([f"projection {i}" for i in range(PROJECTED)], project)

    def __call__(self, observation: Observation) -> FloatArray:
        """Return a row for each observation."""
        rows = as_rows(*by_key(observation).values())
        return rows if self.projection is None else rows @ self.projection


def stacked(observations: Sequence[Any]) -> Any:
    """Stack observations; text, such as a mission, is left out, as data has none."""
    trees = [without_tuples(one) for one in observations]
    if isinstance(trees[0], Mapping):
        keys = [key for key, part in trees[0].items() if not isinstance(part, str)]
        return {key: np.array([tree[key] for tree in trees]) for key in keys}
    return np.array(trees)


@dataclass(frozen=True)
class Rows(Columns):
    """Transitions as rows of numbers."""

    state: FloatArray
    action: Array
    after: FloatArray
    reward: FloatArray
    terminated: BoolArray
    episode: IntArray
    step: IntArray


def rows_of(dataset: Dataset, flat: Flat, episodes: IntArray) -> Rows:
    """Return the rows of episodes, of the first that are named up to `MOST_ROWS`."""
    ends = np.cumsum(dataset.length)
    enough = 1 + int(np.searchsorted(np.cumsum(dataset.length[episodes]), MOST_ROWS))
    parts = []
    for number in episodes[:enough].tolist():
        steps = np.arange(int(dataset.length[number]))
        rows = slice(int(ends[number]) - len(steps), int(ends[number]))
        where = slice(rows.start + number, rows.stop + number + 1)
        seen = flat(over_columns(lambda column, at=where: column[at], dataset.observation))
        over = (steps == len(steps) - 1) & bool(dataset.terminated[number])
        reward = dataset.reward[rows].astype(np.float64)
        which = np.full(len(steps), number)
        parts.append(Rows(seen[:-1], dataset.action[rows], seen[1:], reward, over, which, steps))
    return Rows.concatenate(parts)


def scale_of(rows: FloatArray) -> FloatArray:
    """Return the spread of each column; 1 for a constant."""
    spread = rows.std(axis=0)
    return np.where(spread > 1e-12 * (1 + np.abs(rows).max(axis=0)), spread, 1.0)


@dataclass(frozen=True)
class Space:
    """Where rows are near one another: of one group, and close in it; and what was taught there."""

    taught: Rows
    named: bool
    scale: FloatArray
    groups: dict[int, IntArray]
    """Rows of `taught` of each action, or of each state and action."""
    trees: dict[int, Any]

    @classmethod
    def of(cls, taught: Rows, named: bool) -> "Space":
        """Learn scales and places; `named` observations are near one another only where equal."""
        plain = cls(taught, named, np.ones(1), {}, {})
        points = plain.points(taught)
        scale = scale_of(points)
        groups = plain.grouped(taught)
        trees = {group: cKDTree(points[rows] / scale) for group, rows in groups.items()}
        return cls(taught, named, scale, groups, trees)

    def points(self, rows: Rows) -> FloatArray:
        """Return where rows are within their group: states, and actions that are vectors."""
        if self.named:
            return np.zeros((len(rows.reward), 1))
        if is_index(rows.action):
            return rows.state / self.scale
        return as_rows(rows.state, rows.action) / self.scale

    def grouped(self, rows: Rows) -> dict[int, IntArray]:
        """Return the rows of each action, or of each state and action."""
        key = np.zeros(len(rows.reward), np.int64)
        if self.named:
            key = row_hashes(rows.state, rows.action).view(np.int64)
        elif is_index(rows.action):
            key = rows.action.astype(np.int64)
        return by_group(key)

    def matched(
        self, held: Rows, live: Rows, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """Match live rows with held-out logged ones nearby, each of which is taken once."""
        there, here, of_held = self.points(held), self.points(live), self.grouped(held)
        pairs = []
        for group, mine in self.grouped(live).items():
            logged = of_held.get(group, mine[:0])
            if not len(logged):
                continue
            tree, some = cKDTree(there[logged]), rng.permutation(logged)[:300]
            candidates = range(1, 1 + min(CANDIDATES, len(logged)))
            apart, who = tree.query(there[some], k=candidates)
            other = held.episode[logged][who] != held.episode[some][:, None]
            near = np.quantile(np.where(other, apart, apart[:, -1:]).min(axis=1), NEAR)
            distance, who = tree.query(here[mine], k=candidates)
            if self.named:  # all rows of a group are alike
                who = np.tile(rng.permutation(len(logged)), (len(mine), 1))
                distance = np.zeros(who.shape)
            free = np.ones(len(logged), np.bool_)
            for row in rng.permutation(len(mine)):
                open_ = np.flatnonzero(free[who[row]] & (distance[row] <= near))
                if len(open_):
                    match = who[row, open_[0]]
                    free[match] = False
                    pairs.append((mine[row], logged[match]))
        found = np.array(sorted(pairs), np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def predicted(self, target: FloatArray, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Predict a target of the taught rows for others, and how far off that may be there.

        In each group it is a polynomial, and the mean of what that leaves at the nearest rows;
        their spread says how well a place is known.
        """
        found, spread = np.zeros((2, len(rows.reward), target.shape[1]))
        points, place = self.points(rows), self.points(self.taught)
        for group, mine in self.grouped(rows).items():
            known = self.groups.get(group)
            if known is None:
                continue
            if self.named:
                found[mine], spread[mine] = target[known].mean(axis=0), target[known].std(axis=0)
                continue
            basis = _monomials(place[known], min(MOST_FEATURES, len(known) // 5))
            gram = basis.T @ basis
            ridge = 1e-7 * np.trace(gram) / len(gram) * np.eye(len(gram))
            mean = target[known].mean(axis=0)  # constants are to be predicted to the last digit
            weights = np.linalg.solve(gram + ridge, basis.T @ (target[known] - mean))
            left = target[known] - basis @ weights
            nearest = range(1, 1 + min(NEIGHBOURS, len(known)))
            near = self.trees[group].query(points[mine], k=nearest)[1]
            found[mine] = _monomials(points[mine], basis.shape[1]) @ weights
            found[mine] += left[near].mean(axis=1)
            spread[mine] = left[near].std(axis=1)
        return found, spread


def _monomials(points: FloatArray, most: int) -> FloatArray:
    """Return all products of up to one, two or three coordinates, but no more than `most`."""
    points = np.clip(points, -10, 10)
    columns = [np.ones(len(points))]
    for degree in (1, 2, 3):
        more = list(combinations_with_replacement(range(points.shape[1]), degree))
        if len(columns) + len(more) > most:
            break
        columns += [points[:, which].prod(axis=1) for which in more]
    return np.stack(columns, axis=1)
