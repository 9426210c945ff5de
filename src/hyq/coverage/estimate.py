"""Estimates with intervals, from groups that are left out in turn."""

import math
from dataclasses import dataclass

from hyq.core.types import FloatArray

FOLDS = 10
NORMAL_95 = 1.959964
STUDENT = 2.262157 / NORMAL_95
"""A std from ten folds has nine degrees of freedom, which an interval has to make up for."""
MOST_DIGITS = 6


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

    def within(self, least: float, most: float) -> "Interval":
        """Keep it to what its meaning allows."""
        return Interval(*(min(max(x, least), most) for x in (self.value, self.low, self.high)))

    def text(self, digits: int = 3) -> str:
        """Show value and bounds, with more digits where the bounds would look the same."""
        shown = [f"{number:.{digits}g}" for number in (self.value, self.low, self.high)]
        if shown[1] == shown[2] and digits < MOST_DIGITS and self.low < self.high:
            return self.text(digits + 1)
        return "{} ({} to {})".format(*shown)


def jackknife_std(without: FloatArray) -> float:
    """Return the standard deviation of an estimate, given it with each group left out."""
    return math.sqrt(len(without) - 1) * float(without.std())
