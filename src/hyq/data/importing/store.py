"""Where imported columns are put together."""

from pathlib import Path

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.memory import check_room
from hyq.core.types import Array, IntArray
from hyq.data.columns import Column, release
from hyq.data.frames import CompressedFrames, PackedFrames, is_image


class Store:
    """Columns that are filled in any order: in memory, on disk, or as compressed images."""

    def __init__(self, draft: Path | None) -> None:
        """Take the directory of the files, where there is one."""
        self._draft = draft
        self._columns: dict[str, Array | CompressedFrames] = {}
        self._like: dict[str, Array] = {}

    def put(self, name: str, length: int, slots: IntArray, rows: Array, file: str) -> None:
        """Put rows of a file where they belong in a column of some length."""
        if name not in self._columns:
            self._columns[name], self._like[name] = self._room(name, length, rows), rows[:0]
        column, shape = self._columns[name], self._like[name].shape[1:]
        if rows.shape[1:] != shape:
            raise HyqError(f"{file} has rows of shape {rows.shape[1:]} where others have {shape}")
        if isinstance(column, CompressedFrames):
            column.put(slots, rows)
        else:
            column[slots] = rows
            release(column)

    def column(self, name: str) -> Column:
        """Return a whole column, once it is filled."""
        column = self._columns[name]
        if isinstance(column, CompressedFrames):
            exported = column.export(np.arange(len(column._blobs)))
            return PackedFrames(exported["blob"], exported["size"], self._like[name].shape[1:])
        return column

    def _room(self, name: str, length: int, rows: Array) -> Array | CompressedFrames:
        shape = (length, *rows.shape[1:])
        if is_image(shape[1:], rows.dtype):
            return CompressedFrames(length, shape[1:], rows.dtype)
        if self._draft is not None:
            return np.lib.format.open_memmap(self._draft / f"{name}.npy", "w+", rows.dtype, shape)
        size = length * rows[:1].nbytes
        check_room(size, f"column {name!r}", "import the files with 'hyq data import' first")
        return np.zeros(shape, rows.dtype)
