"""Values that change with time."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from hyq.core.errors import HyqError


@dataclass(frozen=True)
class PiecewiseLinear:
    """A schedule through given (time, value) knots: linear between them, constant outside."""

    knots: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Refuse a schedule that has no knots or whose times do not increase."""
        times = [time for time, _ in self.knots]
        if not times or any(a >= b for a, b in pairwise(times)):
            raise HyqError(f"a schedule needs knots with increasing times, got {self.knots}")

    def __call__(self, time: float) -> float:
        """Read the schedule at `time`."""
        right = bisect_right(self.knots, time, key=lambda knot: knot[0])
        if right == 0:
            return self.knots[0][1]
        if right == len(self.knots):
            return self.knots[-1][1]
        (t0, v0), (t1, v1) = self.knots[right - 1], self.knots[right]
        return v0 + (v1 - v0) * (time - t0) / (t1 - t0)
