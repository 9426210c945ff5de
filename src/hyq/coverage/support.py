"""Where a policy has logged pairs near it: from logs alone, or along episodes it has played."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.coverage.scan import as_rows, by_group, is_index

ORDINARY = 0.99
"""Share of logged pairs that have a neighbour in another episode within the limit."""
LEAST_INSIDE = 0.95
"""Share of its time that a supported policy spends where the data is."""
MOST_NEIGHBOURS = 20


@dataclass(frozen=True)
class Support:
    """How far logs speak for a policy, without any play."""

    agreement: float
    """Share of logged transitions on which the policy would have acted as logged."""
    inside: float
    """Share of its time that the policy stays where data is."""


@dataclass(frozen=True)
class Logged:
    """Logged pairs to look for neighbours in; discrete actions are groups, others coordinates."""

    rows: Mapping[int, IntArray]
    trees: Mapping[int, Any]
    scale: FloatArray
    """Of actions that are vectors."""
    limit: float
    """Within this distance of a logged pair there is data."""

    @classmethod
    def of(cls, state: Array, action: Array, episode: IntArray) -> "Logged":
        """Learn how far apart pairs of different episodes ordinarily are."""
        scale = np.ones(1) if is_index(action) else np.maximum(as_rows(action).std(axis=0), 1e-12)
        points, rows = cls({}, {}, scale, 0.0).grouped(state, action)
        trees = {g: cKDTree(points[mine]) for g, mine in rows.items()}
        apart = [np.zeros(0)]
        for g, mine in rows.items():
            if len(mine) < 2:
                continue
            alone = len(np.unique(episode[mine])) == len(mine)
            most = min(2 if alone else MOST_NEIGHBOURS, len(mine))
            length, neighbour = trees[g].query(points[mine], k=range(1, 1 + most))
            other = episode[mine][neighbour] != episode[mine][:, None]
            nearest = np.where(other, length, np.inf).min(axis=1)
            apart.append(np.where(other.any(axis=1), nearest, length[:, -1]))
        known = np.concatenate(apart)
        rounding = 1e-6 * float(np.sqrt(np.square(points).sum(axis=1).mean())) if len(points) else 0
        limit = float(np.quantile(known, ORDINARY)) if len(known) else 0.0
        return cls(rows, trees, scale, max(limit, rounding))

    def grouped(self, state: Array, action: Array) -> tuple[FloatArray, dict[int, IntArray]]:
        """Return where pairs are, and the rows of each group."""
        if is_index(action):
            return as_rows(state), by_group(action.astype(np.int64))
        points = np.concatenate([as_rows(state), as_rows(action) / self.scale], axis=1)
        return points, by_group(np.zeros(len(points), np.int64))

    def nearest(self, state: Array, action: Array) -> tuple[BoolArray, IntArray]:
        """Say which pairs are near a logged one, and return the row of the nearest."""
        points, groups = self.grouped(state, action)
        distance, row = np.full(len(points), np.inf), np.zeros(len(points), np.int64)
        for g in groups.keys() & self.trees.keys():
            distance[groups[g]], found = self.trees[g].query(points[groups[g]])
            row[groups[g]] = self.rows[g][found]
        return distance <= self.limit, row
