"""Minibatches that know the step: the same number of random rows from every step of an episode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import IntArray
from hyq.data.steps import StepView


@dataclass(frozen=True, eq=False)
class StepSampler:
    """Draws from rows that lie end to end, step after step."""

    first: IntArray
    """Index of each step's first row."""
    count: IntArray
    """Rows of each step."""

    def __post_init__(self) -> None:
        """Raise for a step without data, which no minibatch could show."""
        if not self.count.all():
            missing = int(np.argmin(self.count))
            raise HyqError(
                f"step {missing} has no transitions to draw from: learn one network for all steps"
            )

    @classmethod
    def of(cls, view: StepView) -> Self:
        """Draw from each step of a dataset."""
        return cls.counted(np.bincount(view.step, minlength=view.horizon).tolist())

    @classmethod
    def counted(cls, counts: Sequence[int]) -> Self:
        """Draw from steps with these numbers of rows."""
        count = np.array(counts)
        return cls(np.cumsum(count) - count, count)

    def draw(self, rows: int, rng: np.random.Generator) -> IntArray:
        """Return indices of shape (steps, rows), with replacement."""
        share = rng.random((len(self.count), rows))
        within: IntArray = (share * self.count[:, None]).astype(np.int64)
        return self.first[:, None] + within
