"""Which of a policy's visits have no logged neighbour: support without a model of densities."""

import numpy as np

from hyq.core.types import Array, FloatArray, IntArray

QUANTILE = 0.99


def unsupported(
    logged: Array, logged_group: IntArray, visited: Array, visited_group: IntArray
) -> FloatArray:
    """Say of each visit whether its nearest logged pair of the same group is unusually far.

    Unusual is further than 99% of logged pairs are from their own nearest neighbour in their group.
    A visit whose group was never logged has no support at all.
    """
    data, points = _flat(logged), _flat(visited)
    own = np.full(len(data), np.nan)
    nearest = np.full(len(points), np.inf)
    for g in np.union1d(logged_group, visited_group):
        rows, mine = np.flatnonzero(logged_group == g), np.flatnonzero(visited_group == g)
        if len(rows) and len(mine):
            nearest[mine] = _distances(points[mine], data[rows]).min(axis=1)
        if len(rows) > 1:
            between = _distances(data[rows], data[rows])
            np.fill_diagonal(between, np.inf)
            own[rows] = between.min(axis=1)
    known = own[~np.isnan(own)]
    # Distances between equal points are rounding errors of the squares they come from.
    rounding = 1e-3 * float(np.sqrt(np.square(data).sum(axis=1).mean()))
    limit = max(float(np.quantile(known, QUANTILE)) if len(known) else 0.0, rounding)
    return np.asarray(nearest > limit, dtype=np.float64)


def _flat(rows: Array) -> FloatArray:
    flat = rows.reshape(len(rows), -1)
    return np.asarray(flat, dtype=np.float32)


def _distances(left: FloatArray, right: FloatArray) -> FloatArray:
    squares = (
        np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1) - 2 * left @ right.T
    )
    return np.sqrt(np.maximum(squares, 0.0))
