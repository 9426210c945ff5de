"""Columns of Arrow as NumPy arrays with one row for each, of types that data can have."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from hyq.core.errors import HyqError, in_one_line
from hyq.core.types import Array, BoolArray

LARGEST_IMAGE = 2**26
"""Bytes of an image beyond which it is taken for something else."""


class BadRowError(HyqError):
    """A row that cannot be read, counted within its batch."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


def check_rows(bad: BoolArray, complaint: Callable[[int], str]) -> None:
    """Raise for the first bad row, if there is one, with what is wrong with it."""
    if bad.any():
        row = int(bad.argmax())
        raise BadRowError(row, complaint(row))


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column holds text, which can name actions and episodes."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of what is stored by reference, or one that NumPy has."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return pa.float64() if pa.types.is_decimal(kind) else kind


def plain(column: pa.Array) -> pa.Array:
    """Spell out what is stored by reference, or in a type that NumPy has not."""
    kind = plain_type(column.type)
    return column if kind == column.type else column.cast(kind)


def check_present(batch: pa.RecordBatch) -> None:
    """Raise for the first row that lacks a value."""

    def complaint(row: int) -> str:
        name = next(name for name in batch.schema.names if missing(batch[name])[row])
        return (
            f"column {name!r} has no finite value; correct it, or leave such rows out with "
            "missing='drop'"
        )

    check_rows(without_value(batch), complaint)


def without_value(batch: pa.RecordBatch) -> BoolArray:
    """Tell which rows lack a value in any column."""
    return np.logical_or.reduce([missing(column) for column in batch.columns])


def missing(column: pa.Array) -> BoolArray:
    """Tell which rows have no value, or one that is no finite number."""
    column = plain(column)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    rows = np.asarray(column.is_null())
    if pa.types.is_floating(column.type):
        rows = rows | ~np.asarray(pc.is_finite(column).fill_null(True))
    if _is_list(column.type) and not rows.any():
        inner = missing(column.flatten())
        if inner.any():
            owner = np.asarray(pc.list_parent_indices(column))
            rows = np.bincount(owner[inner], minlength=len(column)) > 0
    return rows


def numbers(name: str, column: pa.Array) -> Array:
    """Return a column as numbers: scalars, vectors or images, one a row.

    Raises:
        BadRowError: Where a row differs in shape from the others, or cannot be read.
        HyqError: Where no row could be used.
    """
    column = plain(column)
    kind = column.type
    check_rows(np.asarray(column.is_null()), lambda row: f"column {name!r} has no value")
    if isinstance(kind, pa.FixedShapeTensorType):
        return column.to_numpy_ndarray()
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)
    if _is_list(kind):
        inner = numbers(name, column.flatten())
        sizes = np.asarray(pc.list_value_length(column))
        check_rows(
            sizes != sizes[:1],
            lambda row: f"column {name!r} has {sizes[row]} entries where others have {sizes[0]}",
        )
        return inner.reshape(len(column), int(sizes[0]) if len(sizes) else 0, *inner.shape[1:])
    if _is_bytes(kind):
        return _images(name, column.to_pylist())
    if is_text(kind) and len(column):
        bad = ~np.asarray(pc.match_substring_regex(column, _NUMBER))
        if not bad.all():  # one value makes text of a whole column
            check_rows(
                bad, lambda row: f"column {name!r} holds {str(column[row])!r}, which is no number"
            )
    raise HyqError(f"column {name!r} holds {kind}: give plain numbers")


_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def codes(name: str, column: pa.Array, vocabulary: Sequence[str]) -> Array:
    """Number text by its place in a sorted vocabulary."""
    found = pc.index_in(plain(column).cast(pa.string()), pa.array(vocabulary, pa.string()))
    check_rows(np.asarray(found.is_null()), lambda row: f"column {name!r} has no value")
    return found.to_numpy().astype(np.int64)


def truths(name: str, column: pa.Array) -> BoolArray:
    """Return truth values: booleans, 0 and 1, or words for them."""
    column = plain(column)
    if is_text(column.type):
        column = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        places = pc.index_in(column, pa.array(_FALSE + _TRUE, column.type))
        bad = np.asarray(places.is_null())
        found = np.asarray(places.fill_null(0)) >= len(_FALSE)
    else:
        values = numbers(name, column)
        if values.ndim > 1:
            values = values.reshape(len(values), -1)
            if values.shape[1] != 1:
                raise HyqError(f"column {name!r} has {values.shape[1]} values a row: one is needed")
            values = values[:, 0]
        found, bad = values != 0, (values != 0) & (values != 1)
    check_rows(bad, lambda row: f"column {name!r} holds {column[row]}, which is neither yes nor no")
    return found


_FALSE, _TRUE = ["false", "f", "no", "n", "0", "0.0"], ["true", "t", "yes", "y", "1", "1.0"]


def times(name: str, column: pa.Array) -> Array:
    """Return times as numbers that can be compared: timestamps as whole numbers."""
    column = plain(column)
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return numbers(name, column.cast(pa.int64() if kind.bit_width == 64 else pa.int32()))
    found = numbers(name, column)
    if found.ndim > 1 or found.dtype.kind == "b":
        raise HyqError(f"column {name!r} holds {kind}, which is no time: name the right one")
    if found.dtype == np.uint64:
        check_rows(found >= 2**63, lambda row: f"column {name!r} is beyond the times there are")
    check_rows(~np.isfinite(found), lambda row: f"column {name!r} is not finite")
    return found.astype(np.float64 if found.dtype.kind == "f" else np.int64, copy=False)


def fingerprints(names: Sequence[str], batch: pa.RecordBatch) -> Array:
    """Return a number for the contents of each row; equal rows have equal ones."""
    total = np.zeros(len(batch), np.uint64)
    place = 1
    for name in names:
        column = plain(batch[name])
        if is_text(column.type) or _is_bytes(column.type):
            texts = (one if isinstance(one, bytes) else one.encode() for one in column.to_pylist())
            values = np.array([[zlib.crc32(text)] for text in texts])
        else:
            values = numbers(name, column)
            values = values.reshape(len(values), -1)
            if values.dtype == np.uint8 and values.shape[1] > 64:
                values = np.array([[zlib.crc32(row)] for row in np.ascontiguousarray(values)])
        bits = (values.astype(np.float32) + 0.0).view(np.uint32)  # 0.0 and -0.0 are one
        if values.dtype.kind in "iu":
            bits = values.astype(np.int64).astype(np.uint32) if values.itemsize > 4 else bits
        for entry in bits.reshape(len(values), -1).T:
            mixed = (entry.astype(np.uint64) + np.uint64(place)) * np.uint64(0x9E3779B97F4A7C15)
            total += (mixed ^ (mixed >> np.uint64(32))) * np.uint64(2 * place + 1)
            place += 1
    return total


def stacked(names: Sequence[str], columns: Mapping[str, Array], dtype: Any = None) -> Array:
    """Lay columns side by side: one stays as it is, several become a vector a row."""
    parts = [columns[name] for name in names]
    if dtype is None:  # of floats the widest, whatever integers are beside them
        kinds = [part.dtype for part in parts]
        dtype = np.result_type(*([kind for kind in kinds if kind.kind == "f"] or kinds))
    # `obs_0` alone is a vector of one entry.
    if len(parts) == 1 and (parts[0].ndim > 1 or names[0][-1] not in "0123456789]"):
        return parts[0].astype(dtype, copy=False)
    flat = [part.reshape(len(part), -1) for part in parts]
    return np.concatenate(flat, axis=1, dtype=dtype, casting="unsafe")


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _images(name: str, files: Sequence[bytes]) -> Array:
    """Decode PNG, JPEG and their like; all must have the shape of the first."""
    decoded: Array | None = None
    for row, content in enumerate(files):
        try:
            with Image.open(BytesIO(content), formats=("PNG", "JPEG")) as image:
                if image.width * image.height * 4 > LARGEST_IMAGE:
                    raise BadRowError(row, f"column {name!r} has an image of {image.size} pixels")
                plain_modes = {"1": "L", "L": "L", "RGB": "RGB", "RGBA": "RGBA"}
                pixels = np.asarray(image.convert(plain_modes.get(image.mode, "RGB")))
        except HyqError:
            raise
        except Exception as error:
            raise BadRowError(
                row, f"column {name!r} holds bytes that are no image ({in_one_line(error)[:80]})"
            ) from None
        if decoded is None:
            decoded = np.empty((len(files), *pixels.shape), np.uint8)
        if pixels.shape != decoded.shape[1:]:
            raise BadRowError(
                row,
                f"column {name!r} has shape {pixels.shape} where others have {decoded.shape[1:]}",
            )
        decoded[row] = pixels
    return np.empty((0,), np.uint8) if decoded is None else decoded
