"""The shapes data takes on its way from an environment to a regression."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]
Array = NDArray[Any]


class Columns:
    """Rows kept as columns: what a dataclass of arrays of one length can do."""

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(*(column[rows] for column in vars(self).values()))

    @classmethod
    def concatenate(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        """Join rows in order."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column, axis) for column in columns))


@dataclass(frozen=True)
class Transitions(Columns):
    """A batch of (s, a, r, s') tuples, one row each.

    `discount` is the only encoding of termination: 0 where the episode *terminated* at s', 1 (or
    gamma) elsewhere. A truncated episode keeps it, because its last state still has a value.
    """

    observation: Array
    action: Array
    reward: FloatArray
    discount: FloatArray
    next_observation: Array

    def __len__(self) -> int:
        return len(self.reward)
