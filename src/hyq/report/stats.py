"""Statistics of a few seeds, each saying what it does about the few and the unfinished."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyq.core.types import FloatArray


def band(curves: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum curves (rows) up at every point: 20th percentile, median and 80th, as the paper plots.

    Where any curve is NaN so is the band: the seeds that ran longer may be the lucky ones.
    """
    low, centre, high = np.quantile(curves, (0.2, 0.5, 0.8), axis=0)
    return low, centre, high


def interquartile_mean(values: FloatArray) -> float:
    """Return the mean of the middle half, weighing the values on its edges by what is inside.

    As steady as a median against outliers, yet it uses half of the data rather than one value.
    """
    ordered = np.sort(np.ravel(values))
    # Value i covers the stretch [i, i + 1) of the sample; count how much of it is in the middle.
    edges = np.arange(len(ordered) + 1)
    inside = np.clip(edges, len(ordered) / 4, 3 * len(ordered) / 4)
    weights = np.diff(inside)
    return float(ordered @ weights / weights.sum())


def bootstrap_interval(
    tasks: Sequence[Sequence[float]],
    rng: np.random.Generator,
    resamples: int = 2000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return an interval for the interquartile mean over tasks, resampling the seeds of each.

    The tasks are not resampled: it says how far other seeds would differ, not other tasks.
    """
    samples = (rng.choice(task, (resamples, len(task))) for task in tasks)
    drawn = [interquartile_mean(sample) for sample in np.concatenate([*samples], axis=1)]
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


@dataclass(frozen=True)
class StepsToSolve:
    """Online steps until solved, where a run that ran out of budget is *censored*, not dropped.

    A censored run says only that it needs more than it was given. The median is exact as long as
    fewer than half of the runs are censored; after that only a lower bound is known.
    """

    solved: int
    runs: int
    median: float
    median_is_bound: bool

    @classmethod
    def of(cls, steps: Sequence[float], solved: Sequence[bool]) -> "StepsToSolve":
        """Summarise runs by (steps taken, whether solved)."""
        spent = sorted(
            (np.inf if not done else used, used) for used, done in zip(steps, solved, strict=True)
        )
        needed, used = spent[(len(spent) - 1) // 2]
        bound = bool(np.isinf(needed))
        return cls(sum(solved), len(spent), float(used if bound else needed), bound)

    def __str__(self) -> str:
        return f"{'> ' if self.median_is_bound else ''}{self.median:,.0f}"
