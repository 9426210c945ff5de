"""Measurements of Algorithm 1 summed up: means over seeds, log-log slopes, samples until near."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

Row = dict[str, Any]
"""One measurement: its problem and panel, T, m_off, C_pi and what was lost."""


def mean_curve(
    rows: Iterable[Row], by: str, of: str = "cumulative"
) -> tuple[list[float], list[float]]:
    """Return the mean of `of` over seeds for each value of `by`, in order."""
    groups: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row[of])
    keys = sorted(groups)
    return keys, [float(np.mean(groups[key])) for key in keys]


def slope(x: list[float], y: list[float], last: int = 3) -> float:
    """Fit the log-log slope of the last points."""
    kept = [(a, b) for a, b in zip(x, y, strict=True) if a > 0 and b > 0][-last:]
    if len(kept) < 2:
        return math.nan
    logs = np.log(np.array(kept))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def samples_needed(rows: list[Row], epsilon: float) -> tuple[int, bool]:
    """Return 2 H T for the first T from which on the average policy is within `epsilon`.

    Every T was a run of its own, with m_off = T. If none is near enough it returns the largest
    number tried, and False.
    """
    x, y = mean_curve(rows, "iterations")
    near = [loss <= epsilon * t for t, loss in zip(x, y, strict=True)]
    first = len(near) - next((i for i, ok in enumerate(reversed(near)) if not ok), len(near))
    reached = first < len(near)
    return int(2 * rows[0]["horizon"] * x[first if reached else -1]), reached


def select(rows: Iterable[Row], panel: str, **wanted: Any) -> list[Row]:
    """Return the rows of one panel with the given values."""
    return [
        row
        for row in rows
        if row["panel"] == panel and all(row[name] == value for name, value in wanted.items())
    ]
