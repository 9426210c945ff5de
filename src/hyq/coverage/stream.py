"""Reading a dataset from disk in blocks, once, however large it is and whatever is wrong with it.

`Dataset.load` refuses damaged data and maps files into memory; an inspection has to describe
damaged data, and its memory must not grow with the files.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, IntArray
from hyq.data.dataset import COLUMNS, read_manifest

BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Column:
    """One `.npy` file: where its rows begin and what they look like."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @classmethod
    def open(cls, path: Path) -> "Column":
        """Read the header."""
        try:
            with path.open("rb") as file:
                version = np.lib.format.read_magic(file)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, fortran, dtype = read(file)
                offset = file.tell()
        except FileNotFoundError:
            raise HyqError(f"{path} is missing: the dataset is incomplete") from None
        except ValueError:
            raise HyqError(f"{path} is not a plain NumPy array") from None
        if dtype.hasobject or (fortran and len(shape) > 1):
            raise HyqError(f"{path} must hold plain numbers, row by row")
        if path.stat().st_size < offset + prod(shape) * dtype.itemsize:
            raise HyqError(f"{path} was cut short: it holds fewer rows than its header says")
        return cls(path, shape, dtype, offset)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    def read(self, file: BinaryIO, rows: int) -> Array:
        """Read the next `rows` rows."""
        flat = np.fromfile(file, self.dtype, rows * prod(self.shape[1:]))
        return flat.reshape(rows, *self.shape[1:])

    def pick(self, rows: IntArray) -> Array:
        """Read some rows, wherever they are."""
        with self.path.open("rb") as file:
            picked = []
            for row in rows:
                file.seek(self.offset + int(row) * self.row_bytes)
                picked.append(self.read(file, 1))
        return np.concatenate(picked)


@dataclass(frozen=True)
class DatasetFiles:
    """A dataset's directory, opened but not read."""

    path: Path
    columns: Mapping[str, Column]
    provenance: Mapping[str, Any]
    digests: Mapping[str, str]
    """SHA-256 of each column's file, as the manifest has them."""

    @classmethod
    def open(cls, path: Path) -> "DatasetFiles":
        """Read the manifest and every header, and see that they belong together."""
        manifest = read_manifest(path)
        columns = {name: Column.open(path / f"{name}.npy") for name in COLUMNS}
        lengths = {column.shape[0] for column in columns.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise HyqError(f"the columns of {path} have {sorted(lengths)} rows: all must have one")
        return cls(path, columns, manifest["provenance"], manifest["sha256"])

    def __len__(self) -> int:
        """Count the transitions."""
        return self.columns["step"].shape[0]

    def steps(self) -> IntArray:
        """Return how many transitions each step has."""
        column = self.columns["step"]
        counts: IntArray = np.zeros(1, dtype=np.int64)
        last = 0
        with column.path.open("rb") as file:
            file.seek(column.offset)
            for start in range(0, len(self), 1 << 20):
                block = column.read(file, min(1 << 20, len(self) - start))
                if block[0] < last or (block[1:] < block[:-1]).any():
                    raise HyqError(f"rows of {self.path} must be sorted by 'step', counting from 0")
                last = int(block[-1])
                counts = np.pad(counts, (0, max(0, last + 1 - len(counts))))
                counts += np.bincount(block, minlength=len(counts))
        return counts

    def blocks(self, altered: set[str]) -> Iterator[dict[str, Array]]:
        """Yield every row in order, a block at a time; name columns of a wrong hash in `altered`.

        Files are hashed as they are read, so that checking them costs no second pass.
        """
        width = sum(column.row_bytes for column in self.columns.values())
        rows = max(1, min(BLOCK_BYTES // width, 1 << 17))
        digests = {name: hashlib.sha256() for name in self.columns}
        files: dict[str, BinaryIO] = {}
        try:
            for name, column in self.columns.items():
                files[name] = column.path.open("rb")
                digests[name].update(files[name].read(column.offset))
            for start in range(0, len(self), rows):
                count = min(rows, len(self) - start)
                block = {name: c.read(files[name], count) for name, c in self.columns.items()}
                for name, values in block.items():
                    digests[name].update(values.data.cast("B"))
                yield block
            for name in self.columns:
                digests[name].update(files[name].read())
        finally:
            for file in files.values():
                file.close()
        for name, digest in digests.items():
            if self.digests.get(name) != digest.hexdigest():
                altered.add(name)
