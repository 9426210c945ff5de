"""Columns of offline data: checked, hashed, written and read back without ever unpickling."""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import file_digest, read_json, write_json
from hyq.core.types import Array, BoolArray
from hyq.data.frames import PackedFrames, is_image

FORMAT = "hyq-dataset-2"
_PACKED = (".blob", ".size", ".shape")
"""Endings of the three files that hold a column of compressed images."""

Column = Array | PackedFrames
Observation = Column | Mapping[str, Column]
"""One column, or one for each key of a dictionary observation space."""


def named(name: str, observation: Observation) -> dict[str, Column]:
    """Return the columns of an observation by a name for messages."""
    if isinstance(observation, Mapping):
        if not observation:
            raise HyqError("a dictionary of observations needs at least one key")
        return {f"{name}[{key!r}]": column for key, column in observation.items()}
    return {name: observation}


def over_columns(function: Callable[..., Any], *observations: Any) -> Any:
    """Apply a function to the columns of observations that have the same keys."""
    first = observations[0]
    if isinstance(first, Mapping):
        return {key: function(*(one[key] for one in observations)) for key in sorted(first)}
    return function(*observations)


def only_column(observation: Observation) -> Any:
    """Return the column of an observation that is no dictionary."""
    if isinstance(observation, Mapping):
        raise HyqError(
            f"this needs observations that are one array, not {described(observation)}: flatten "
            "them first"
        )
    return observation


def described(observation: Observation) -> str:
    """Describe the rows of an observation in a few words."""
    if isinstance(observation, Mapping):
        return "{" + ", ".join(f"{k}: {described(v)}" for k, v in observation.items()) + "}"
    return f"{observation.shape[1:]} {observation.dtype}"


def packed(column: Column) -> Column:
    """Compress a column of images; anything else stays as it is."""
    if isinstance(column, np.ndarray) and is_image(column.shape[1:], column.dtype):
        return PackedFrames.pack(column)
    return column


def joined(*parts: Column) -> Column:
    """Lay columns of one shape and type end to end."""
    if len({(part.shape[1:], part.dtype) for part in parts}) != 1:
        raise HyqError("the columns of all episodes must have one shape and type")
    if isinstance(parts[0], PackedFrames):
        return PackedFrames.concatenate([part for part in parts if isinstance(part, PackedFrames)])
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def blocks(column: Column, rows: int = 65536) -> Iterator[Array]:
    """Go through a column in blocks, so that what lies on disk is never read in at once."""
    for start in range(0, len(column), rows):
        yield column[start : start + rows]
        release(column)


def release(column: Column) -> None:
    """Let the system take back what it holds in memory of a column that lies on disk."""
    _advise(column, "MADV_DONTNEED")


def read_at_random(column: Column) -> None:
    """Let the system read only the rows that are needed, not those that follow in the file."""
    _advise(column, "MADV_RANDOM")


def _advise(column: Column, advice: str) -> None:
    array = column.blob if isinstance(column, PackedFrames) else column
    if isinstance(array, np.memmap) and hasattr(mmap, advice):
        array._mmap.madvise(getattr(mmap, advice))  # type: ignore[attr-defined]


def check_vector(name: str, column: Array) -> None:
    """Raise unless a column has one number a row."""
    if column.ndim != 1:
        remedy = ": give it .ravel()" if column.size == len(column) else ""
        raise HyqError(f"column {name!r} must be a vector, got shape {column.shape}{remedy}")


def truth_values(name: str, flags: Array) -> BoolArray:
    """Return flags as truth values; numbers must be 0 or 1."""
    column = np.asarray(flags)
    check_vector(name, column)
    if not ((column == 0) | (column == 1)).all():
        raise HyqError(f"column {name!r} must hold truth values, or 0 and 1")
    return column.astype(np.bool_)


def check_actions(action: Array) -> None:
    """Raise for truth values, which are actions of no space."""
    if action.dtype == np.bool_:
        raise HyqError("column 'action' holds truth values: number the actions with .astype(int)")


def check_numbers(name: str, column: Column) -> None:
    """Raise unless a column holds finite numbers only."""
    if not (np.issubdtype(column.dtype, np.number) or column.dtype == np.bool_):
        raise HyqError(f"column {name!r} holds {column.dtype}: store plain numbers")
    if not np.issubdtype(column.dtype, np.floating):
        return
    bad = [~np.isfinite(block).reshape(len(block), -1).all(axis=1) for block in blocks(column)]
    rows = np.flatnonzero(np.concatenate(bad or [np.zeros(0, np.bool_)]))
    if len(rows):
        raise HyqError(
            f"column {name!r} has NaN or infinite entries in {len(rows):,} of {len(column):,} rows,"
            f" first in row {rows[0]}: clean the data first"
        )


def columns_digest(columns: Mapping[str, Column]) -> str:
    """Return a SHA-256 over the names and (decompressed) contents of columns."""
    total = hashlib.sha256()
    for name, column in columns.items():
        total.update(f"{name} {column.dtype.str} {column.shape}".encode())
        for block in blocks(column, rows=1024):
            total.update(np.ascontiguousarray(block).data.cast("B"))
    return total.hexdigest()


def write_columns(
    directory: Path, columns: Mapping[str, Column], manifest: Mapping[str, Any]
) -> None:
    """Write columns and a manifest with their hashes into a directory that is being made."""
    hashes = {}
    for name, column in columns.items():
        for ending, array in _parts(packed(column)).items():
            file = directory / f"{name}{ending}.npy"
            written = isinstance(array, np.memmap) and Path(str(array.filename)) == file.resolve()
            if not written:  # into its place as it was made
                np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            hashes[name + ending] = file_digest(file)
    write_json(directory / "manifest.json", {"format": FORMAT, **manifest, "sha256": hashes})


def _parts(column: Column) -> dict[str, Array]:
    """Return the arrays that a column is stored as, by the ending of their names."""
    if isinstance(column, PackedFrames):
        arrays = (column.blob, column.size, np.array(column.shape[1:]))
        return dict(zip(_PACKED, arrays, strict=True))
    return {"": column}


def load_columns(
    path: Path, names: Iterable[str], manifest: Mapping[str, Any]
) -> dict[str, Column]:
    """Open columns memory-mapped, after checking each file against its hash."""
    hashes = manifest["sha256"]

    def load(name: str) -> Column:
        if name + _PACKED[0] not in hashes:
            return _load_array(path / f"{name}.npy", hashes.get(name))
        blob, size, shape = (
            _load_array(path / f"{name}{ending}.npy", hashes.get(name + ending))
            for ending in _PACKED
        )
        return PackedFrames(blob, size, tuple(shape.tolist()))

    return {name: load(name) for name in names}


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a dataset's directory, or say why it is none."""
    if not path.is_dir():
        raise HyqError(f"{path} is not a dataset directory: give the directory that was saved")
    if not (path / "manifest.json").exists():
        raise HyqError(
            f"{path} holds no dataset: make one with hyq.Dataset.from_arrays(...).save(DIR), "
            "see docs/your_data.md"
        )
    manifest = read_json(path / "manifest.json")
    found = manifest.get("format")
    if found != FORMAT:
        raise HyqError(
            f"{path} is not a {FORMAT} dataset but {found or 'something else'}: give the "
            "directory that hyq.Dataset.save wrote"
        )
    for name in ("sha256", "provenance"):
        if not isinstance(manifest.get(name), dict):
            raise HyqError(f"the manifest of {path} is damaged: it has no {name!r}")
    return manifest


def _load_array(path: Path, digest: str | None) -> Array:
    if not path.is_file():
        raise HyqError(f"{path} is missing: the dataset is incomplete")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception:  # NumPy's reader of headers raises in many ways
        raise HyqError(f"{path} was altered or cut short: it is not a plain NumPy array") from None
    # A file that is longer than its header says is not read to its end to find that out.
    whole = array.offset + array.nbytes == path.stat().st_size if array.size else True
    if not whole or file_digest(path) != digest:
        raise HyqError(f"{path} was altered or cut short: its hash does not match the manifest")
    return array
