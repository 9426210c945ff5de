"""Rows of columns as numbers and as 64-bit hashes, to count, find and compare them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hyq.core.types import Array, FloatArray, IntArray

_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_hashes(*columns: Array) -> IntArray:
    """Return a 64-bit hash of each row over several columns; equal rows have equal hashes.

    A row's bytes are read as 64-bit words, mixed, and multiplied by fixed odd numbers.
    """
    total: IntArray = np.zeros(len(columns[0]), dtype=np.uint64)
    for salt, column in enumerate(columns if len(total) else ()):
        flat = np.ascontiguousarray(column).reshape(len(column), -1)
        data = flat.view(np.uint8).reshape(len(column), -1)
        short = -data.shape[1] % 8
        if short:
            data = np.pad(data, ((0, 0), (0, short)))
        words = data.view(np.uint64)
        odd = np.random.default_rng(salt).integers(1, 2**63, words.shape[1], dtype=np.uint64)
        total = _mixed(total * _ODD + _mixed(words) @ (odd * np.uint64(2) + np.uint64(1)))
    return total


def _mixed(words: IntArray) -> IntArray:
    """Spread the bits of each word over all of it, one to one.

    Those of round floating-point numbers are all at the upper end, where a product loses them.
    """
    mixed = words ^ (words >> np.uint64(32))
    mixed *= _ODD
    mixed ^= mixed >> np.uint64(29)
    return mixed


def is_index(column: Array) -> bool:
    """Tell indices of states or actions from vectors."""
    return column.ndim == 1 and np.issubdtype(column.dtype, np.integer)


def as_rows(*columns: Any, dtype: DTypeLike = np.float64) -> FloatArray:
    """Lay columns side by side, as rows of numbers."""
    parts = [np.asarray(column[:], dtype) for column in columns]
    flat = [part.reshape(len(part), math.prod(part.shape[1:])) for part in parts]
    return np.concatenate(flat, axis=1)


def by_group(group: IntArray) -> dict[int, IntArray]:
    """Return the rows of each group, in order."""
    order = np.argsort(group, kind="stable")
    names, first = np.unique(group[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, first[1:]), strict=False))


def by_key(observation: Any) -> dict[str, Any]:
    """Return the columns of an observation, in the order of their names."""
    if isinstance(observation, Mapping):
        return dict(sorted(observation.items()))
    return {"observation": observation}


def number_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Name each number of a column's rows."""
    return [f"{name}[{', '.join(map(str, at))}]" if at else name for at in np.ndindex(shape)]
