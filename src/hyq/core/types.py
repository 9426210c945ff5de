"""The shapes data takes on its way from an environment to a regression."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]
Array = NDArray[Any]


@dataclass(frozen=True)
class Transitions:
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

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(*(getattr(self, f.name)[rows] for f in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence["Transitions"], axis: int = 0) -> "Transitions":
        """Join batches in order."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*(np.concatenate(column, axis) for column in columns))
