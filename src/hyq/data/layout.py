"""From rows with their next observations to episodes laid end to end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.trees import first_leaf
from hyq.core.types import Array, BoolArray, IntArray
from hyq.data.columns import (
    Column,
    Observation,
    check_actions,
    check_numbers,
    check_vector,
    over_columns,
)
from hyq.data.frames import PackedFrames, is_image

_AT_ONCE = 1024
"""Images that are laid out, uncompressed, at a time."""
_COMPARED = 65536


def check_given(columns: Mapping[str, Array], seen: Observation, after: Observation) -> None:
    """Raise unless columns can belong to the same transitions."""
    for name in ("reward", "timestep"):
        if name in columns:
            check_vector(name, columns[name])
    if "timestep" in columns and not np.issubdtype(columns["timestep"].dtype, np.integer):
        raise HyqError(
            f"column 'timestep' must hold whole numbers, got {columns['timestep'].dtype}"
        )
    rows = len(first_leaf(seen))
    if not rows:
        raise HyqError("the dataset is empty: there must be a transition")
    for name, column in columns.items():
        if len(column) != rows:
            raise HyqError(f"column {name!r} has {len(column)} rows where 'observation' has {rows}")
    shapes = [over_columns(lambda column: column.shape[1:], one) for one in (seen, after)]
    if shapes[0] != shapes[1]:
        raise HyqError(
            f"column 'next_observation' has rows of shape {shapes[1]} where those of 'observation' "
            f"have {shapes[0]}"
        )
    check_actions(columns["action"])
    for name, column in columns.items():
        check_numbers(name, column)


@dataclass(frozen=True)
class Rows:
    """Which rows make up episodes."""

    kept: IntArray
    """The rows that are transitions, episode after episode."""
    last: IntArray
    """The last row of each episode, whose next observation ends it."""
    length: IntArray
    """Transitions of each episode."""
    timestep: IntArray
    """The timestep of each episode's first transition."""


def sort(timestep: IntArray) -> Rows:
    """Take each row for an episode of its own, sorted by timestep."""
    order: IntArray = np.argsort(timestep, kind="stable")
    return Rows(order, order, np.ones(len(order), np.int64), timestep[order])


def cut(terminated: BoolArray, truncated: BoolArray, without_ends: bool) -> Rows:
    """Cut rows in time order into episodes; the last row ends one.

    Where rows do not say where they led (`without_ends`), one before a truncation is no transition.
    """
    over = terminated | truncated
    over[-1:] = True
    last = np.flatnonzero(over)
    lost = over & ~terminated & without_ends
    length = np.diff(last, prepend=-1) - lost[last]
    last, length = last[length > 0], length[length > 0]
    if not len(last):
        raise HyqError("there are no episodes")
    return Rows(np.flatnonzero(~lost), last, length, np.zeros_like(last))


def check_order(seen: Any, after: Any, over: BoolArray) -> None:
    """Raise unless each row of an episode begins where the one before it ended."""

    def check(here: Array, there: Array) -> None:
        for start in range(0, len(here) - 1, _COMPARED):
            rows = slice(start, min(start + _COMPARED, len(here) - 1))
            same = there[rows] == here[rows.start + 1 : rows.stop + 1]
            broken = ~same.reshape(len(same), -1).all(axis=1) & ~over[rows]
            if broken.any():
                row = start + int(broken.argmax())
                raise HyqError(
                    f"'next_observation' of row {row} is not 'observation' of row {row + 1}: rows "
                    "are out of order or lack ends (for rows in any order leave out truncated)"
                )

    over_columns(check, seen, after)


def lay_out(seen: Array, after: Array, rows: Rows) -> Column:
    """Lay the observations of episodes end to end, each episode with the one it led to."""
    ends = np.cumsum(rows.length) + np.arange(len(rows.length))
    is_end = np.zeros(len(rows.kept) + len(ends), np.bool_)
    is_end[ends] = True
    source = np.empty(len(is_end), np.int64)
    source[ends], source[~is_end] = rows.last, rows.kept

    def laid(part: slice) -> Array:
        found: Array = seen[source[part]]
        found[is_end[part]] = after[source[part][is_end[part]]]
        return found

    if not is_image(seen.shape[1:], seen.dtype):
        return laid(slice(None))
    return PackedFrames.concatenate(
        [
            PackedFrames.pack(laid(slice(start, start + _AT_ONCE)))
            for start in range(0, len(source), _AT_ONCE)
        ]
    )
