"""Observations by slot, each stored once: plain arrays for vectors, compressed for images."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import zstandard
from numpy.typing import DTypeLike

from hyq.core.errors import HyqError
from hyq.core.types import Array, IntArray

LEVEL = 3
"""On Atari frames levels above 3 gain little room for much more time."""
REPLAY_LEVEL = -1
"""In a replay a tenth more room is well spent on unpacking a fifth faster, and packing a third."""
_ALLOCATOR_BYTES = 16
"""What the C library adds to every block of memory that it gives out."""


class Frames(Protocol):
    """Storage for `capacity` observations of one shape and type."""

    @property
    def nbytes(self) -> int:
        """Memory held."""

    def put(self, slots: IntArray, frames: Array) -> None:
        """Store one observation in each slot, in place of what was there."""

    def get(self, slots: IntArray) -> Array:
        """Return the observations of `slots`, an array of any shape."""

    def export(self, slots: IntArray) -> dict[str, Array]:
        """Return the observations of a vector of slots as named arrays, for `load`."""

    def load(self, slots: IntArray, exported: Mapping[str, Array]) -> None:
        """Put exported observations into `slots`."""


class PlainFrames:
    """Observations as they are, in one array."""

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Reserve the room; the system gives it out as it is written to."""
        self._frames = np.zeros((capacity, *shape), dtype)

    @property
    def nbytes(self) -> int:
        """Memory held once every slot has been written."""
        return self._frames.nbytes

    def put(self, slots: IntArray, frames: Array) -> None:
        """Store one observation in each slot, in place of what was there."""
        self._frames[slots] = frames

    def get(self, slots: IntArray) -> Array:
        """Return the observations of `slots`, an array of any shape."""
        return self._frames.take(slots, axis=0)

    def export(self, slots: IntArray) -> dict[str, Array]:
        """Return the observations of a vector of slots as named arrays, for `load`."""
        return {"frames": self.get(slots)}

    def load(self, slots: IntArray, exported: Mapping[str, Array]) -> None:
        """Put exported observations into `slots`."""
        self.put(slots, exported["frames"])


class CompressedFrames:
    """Observations compressed without loss, each by itself so that any can be read alone."""

    def __init__(self, capacity: int, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Start with every slot empty."""
        self._shape = shape
        self._dtype = np.dtype(dtype)
        # An array of objects rather than a list: the garbage collector need not walk over it.
        self._blobs = np.full(capacity, b"", dtype=object)
        self._compressor = zstandard.ZstdCompressor(level=REPLAY_LEVEL)

    @property
    def nbytes(self) -> int:
        """Memory held: the compressed observations with their Python objects, and the slots."""
        held = [sys.getsizeof(blob) + _ALLOCATOR_BYTES for blob in self._blobs if blob]
        return self._blobs.nbytes + sum(held)

    def put(self, slots: IntArray, frames: Array) -> None:
        """Store one observation in each slot, in place of what was there."""
        rows = np.ascontiguousarray(frames, self._dtype).reshape(len(slots), *self._shape)
        blobs = _compress(rows, self._compressor)
        for slot, blob in zip(slots.tolist(), blobs, strict=True):
            self._blobs[slot] = blob

    def get(self, slots: IntArray) -> Array:
        """Return the observations of `slots`, an array of any shape; none is read twice."""
        distinct, first, inverse = np.unique(slots, return_index=True, return_inverse=True)
        frames = np.empty((slots.size, math.prod(self._shape)), self._dtype)
        _decompress_into(frames, first, self._blobs[distinct])
        source = first[inverse.reshape(-1)]
        repeated = np.flatnonzero(source != np.arange(slots.size))
        frames[repeated] = frames[source[repeated]]
        return frames.reshape(*slots.shape, *self._shape)

    def export(self, slots: IntArray) -> dict[str, Array]:
        """Return the observations of a vector of slots as named arrays, for `load`."""
        blob, size = _end_to_end(self._blobs[slots].tolist())
        return {"blob": blob, "size": size}

    def load(self, slots: IntArray, exported: Mapping[str, Array]) -> None:
        """Put exported observations into `slots`."""
        ends = np.cumsum(exported["size"])
        starts = ends - exported["size"]
        for slot, start, end in zip(slots.tolist(), starts, ends, strict=True):
            self._blobs[slot] = exported["blob"][start:end].tobytes()


class PackedFrames:
    """A fixed sequence of compressed images, one vector of bytes that may lie on disk."""

    dtype = np.dtype(np.uint8)

    def __init__(self, blob: Array, size: IntArray, shape: tuple[int, ...]) -> None:
        """Take compressed images end to end in `blob`, their sizes, and the shape of each."""
        self.blob, self.size = blob, size
        self.shape = (len(size), *shape)
        self._ends = np.cumsum(size)
        if size.sum() != len(blob):
            raise HyqError("the compressed images do not add up: the data is damaged")

    @classmethod
    def pack(cls, images: Array) -> "PackedFrames":
        """Compress images one by one."""
        compressor = zstandard.ZstdCompressor(level=LEVEL)
        blobs = list(_compress(np.ascontiguousarray(images, cls.dtype), compressor))
        return cls(*_end_to_end(blobs), images.shape[1:])

    @classmethod
    def concatenate(cls, parts: Sequence["PackedFrames"]) -> "PackedFrames":
        """Lay sequences end to end."""
        blob = np.concatenate([part.blob for part in parts])
        size = np.concatenate([part.size for part in parts])
        return cls(blob, size, parts[0].shape[1:])

    def __len__(self) -> int:
        """Count the images."""
        return len(self.size)

    def __getitem__(self, rows: slice | IntArray, /) -> Array:
        """Decompress some of the images."""
        data = np.asarray(self.blob).data
        ends, size = self._ends[rows], self.size[rows]
        blobs = [data[start:end] for start, end in zip(ends - size, ends, strict=True)]
        images = np.empty((len(blobs), math.prod(self.shape[1:])), self.dtype)
        _decompress_into(images, range(len(blobs)), blobs)
        return images.reshape(-1, *self.shape[1:])


SMALLEST_IMAGE = 1024
"""Bytes below which an image is not worth compressing."""
SMALLEST_UNPACKED = 4096
"""Bytes below which it stays as it is in a replay, which reads far more often than it stores: to
unpack 42x42 frames took a sixth of an update's time."""


def is_image(shape: tuple[int, ...], dtype: DTypeLike, smallest: int = SMALLEST_IMAGE) -> bool:
    """Tell whether observations are images of at least so many bytes."""
    return np.dtype(dtype) == np.uint8 and len(shape) >= 2 and math.prod(shape) >= smallest


def frames_for(capacity: int, shape: tuple[int, ...], dtype: DTypeLike) -> Frames:
    """Choose the storage of a replay: compressed for large images, plain for anything else."""
    if is_image(shape, dtype, SMALLEST_UNPACKED):
        return CompressedFrames(capacity, shape, dtype)
    return PlainFrames(capacity, shape, dtype)


def _compress(frames: Array, compressor: zstandard.ZstdCompressor) -> Iterator[bytes]:
    for frame in frames:
        # A copy, because the result sits in a block as large as the worst case would have needed,
        # and cutting it down leaves a hole too small for the next.
        yield memoryview(compressor.compress(frame)).tobytes()


def _decompress_into(
    frames: Array, rows: Iterable[int], blobs: Iterable[bytes | memoryview]
) -> None:
    """Fill `rows` of a matrix that has one flattened frame a row."""
    decompressor = zstandard.ZstdDecompressor()
    for row, blob in zip(rows, blobs, strict=True):
        frames[row] = np.frombuffer(decompressor.decompress(blob), frames.dtype)


def _end_to_end(blobs: Sequence[bytes]) -> tuple[Array, IntArray]:
    size = np.array([len(blob) for blob in blobs], dtype=np.int64)
    return np.frombuffer(b"".join(blobs), np.uint8), size
