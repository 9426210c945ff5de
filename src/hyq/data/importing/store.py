"""Where imported columns are put together."""

from pathlib import Path

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.memory import check_room
from hyq.core.types import Array, IntArray
from hyq.data.columns import Column, release
from hyq.data.frames import CompressedFrames, PackedFrames, is_image


class Store:
    """A column that is filled in any order: in memory, on disk, or as compressed images."""

    def __init__(self, column: Array | None, frames: CompressedFrames | None, like: Array) -> None:
        self._column, self._frames = column, frames
        self._shape, self._dtype = like.shape[1:], like.dtype

    @classmethod
    def of(cls, draft: Path | None, name: str, rows: int, like: Array) -> "Store":
        """Make room for so many rows like a given one; on disk where there is a directory."""
        if is_image(like.shape[1:], like.dtype):
            return cls(None, CompressedFrames(rows, like.shape[1:], like.dtype), like)
        if draft is None:
            size = rows * like[:1].nbytes
            check_room(size, f"column {name!r}", "import the files with 'hyq data import' first")
            return cls(np.zeros((rows, *like.shape[1:]), like.dtype), None, like)
        shape = (rows, *like.shape[1:])
        path = draft / f"{name}.npy"
        return cls(np.lib.format.open_memmap(path, "w+", like.dtype, shape), None, like)

    def put(self, slots: IntArray, rows: Array, file: str) -> None:
        """Put rows of a file where they belong."""
        if rows.shape[1:] != self._shape:
            raise HyqError(
                f"{file} has rows of shape {rows.shape[1:]} where others have {self._shape}"
            )
        if self._frames is not None:
            self._frames.put(slots, rows)
        else:
            assert self._column is not None
            self._column[slots] = rows
            release(self._column)

    def column(self) -> Column:
        """Return the whole column, once it is filled."""
        if self._frames is None:
            assert self._column is not None
            return self._column
        exported = self._frames.export(np.arange(len(self._frames._blobs)))
        return PackedFrames(exported["blob"], exported["size"], self._shape)
