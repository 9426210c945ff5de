"""The shapes data takes on its way from an environment to a regression."""

from collections.abc import Mapping, Sequence
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
    gamma) elsewhere. A truncated episode keeps its discount, because its
    last state still has a value.
    """

    observation: Array
    action: Array
    reward: FloatArray
    discount: FloatArray
    next_observation: Array

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.reward)

    def __getitem__(self, rows: Any) -> Self:
        """Pick rows by slice, mask or index array."""
        return type(self)(*(getattr(self, f.name)[rows] for f in fields(self)))

    @classmethod
    def concatenate(cls, parts: Sequence["Transitions"]) -> "Transitions":
        """Stack batches in order."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


def below(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Pick the arrays whose names begin with `prefix.`, and drop that from the names."""
    skip = len(prefix) + 1
    return {name[skip:]: v for name, v in arrays.items() if name.startswith(prefix + ".")}
