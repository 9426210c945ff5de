"""Values that change with time."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from hyq.core.errors import HyqError


@dataclass(frozen=True)
class PiecewiseLinear:
    """A schedule through given (time, value) knots: linear between them, constant outside."""

    knots: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        times = [time for time, _ in self.knots]
        if not times or any(a >= b for a, b in pairwise(times)):
            raise HyqError(f"a schedule needs knots with increasing times, got {self.knots}")
        if not all(math.isfinite(number) for knot in self.knots for number in knot):
            raise HyqError(f"a schedule needs finite numbers, got {self.knots}")

    def __call__(self, time: float) -> float:
        """Read the schedule at `time`."""
        if len(self.knots) == 1:  # most are constant, and read in every update
            return self.knots[0][1]
        right = bisect_right(self.knots, time, key=lambda knot: knot[0])
        if right == 0:
            return self.knots[0][1]
        if right == len(self.knots):
            return self.knots[-1][1]
        (t0, v0), (t1, v1) = self.knots[right - 1], self.knots[right]
        return v0 + (v1 - v0) * (time - t0) / (t1 - t0)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value the schedule ever takes."""
        values = [value for _, value in self.knots]
        return min(values), max(values)

    @classmethod
    def parse(cls, text: str) -> "PiecewiseLinear":
        """Read `0.2`, a constant, or `0:0.2, 5e6:0.2, 15e6:0.01`, knots of time and value."""
        try:
            if ":" not in text:
                return cls(((0.0, float(text)),))
            pairs = [knot.split(":") for knot in text.split(",")]
            return cls(tuple((float(time), float(value)) for time, value in pairs))
        except ValueError:
            raise HyqError(
                f"cannot read {text!r} as a schedule: write a number, or knots such as "
                "'0:0.5, 100000:0.2'"
            ) from None


def schedule(value: "float | str | PiecewiseLinear") -> PiecewiseLinear:
    """Make a schedule of a constant, of text, or of a schedule."""
    if isinstance(value, PiecewiseLinear):
        return value
    return PiecewiseLinear.parse(value if isinstance(value, str) else repr(float(value)))
