"""Arrays as tables: in memory, NPZ and HDF5."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa

from hyq.core.errors import HyqError
from hyq.core.memory import check_room
from hyq.core.types import Array
from hyq.data.importing.table import Table, natural, rows_at_once, unusable


def npz(path: Path) -> Table:
    """Read an archive of arrays; no object in it is unpickled."""
    arrays: dict[str, Array] = {}
    with ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
        check_room(size, str(path), "save it as Parquet to import it")
        for name in archive.namelist():
            with archive.open(name) as member:
                try:
                    found = np.lib.format.read_array(member, allow_pickle=False)
                except ValueError as error:
                    if "allow_pickle" not in str(error):
                        raise
                    found = np.zeros(0, object)  # says what it is, should it be needed
            arrays[name.removesuffix(".npy")] = found
    return of_arrays(str(path), arrays)


def hdf5(path: Path) -> Table:
    """Read arrays as D4RL lays them out, or a group for each episode, as robomimic does."""
    try:
        import h5py  # noqa: PLC0415
    except ImportError:
        raise HyqError(f"{path} needs h5py: pip install 'hyq[minari]'") from None

    def arrays_in(group: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def visit(name: str, part: Any) -> None:
            # What lies in other files is none of this one's.
            if isinstance(part, h5py.Dataset) and not (part.is_virtual or part.external):
                found[name.replace("/", ".")] = part

        group.visititems(visit)  # follows no links out of the file, and visits nothing twice
        return found

    with h5py.File(path) as file:
        demos = sorted(map(Path, file["data"]), key=natural) if "data" in file else []
        groups = [f"data/{name}" for name in demos if isinstance(file[f"data/{name}"], h5py.Group)]
        about: dict[str, Any] = {}
        if groups:
            with_env = file["data"].attrs.get("env_args")
            about = {"environment": json.loads(with_env)} if with_env else {}
        parts = [_only_rows(arrays_in(file[group])) for group in groups or ["/"]]
        if groups and any("obs." in name for name in parts[0]):  # robomimic's simulator states
            parts = [{n: a for n, a in part.items() if n != "states"} for part in parts]
        fields = [_field(name, a.dtype, a.shape[1:]) for name, a in parts[0].items()]
        row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in parts[0].values())
        length = sum(_length(part) for part in parts)
    if groups:
        fields += [pa.field("episode", pa.int64()), pa.field("t", pa.int64())]
    schema = pa.schema(fields)
    at_once = rows_at_once(row_bytes)

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with h5py.File(path) as file:
            for number, group in enumerate(groups or ["/"]):
                arrays = _only_rows(arrays_in(file[group]))
                end = _length(arrays)
                for start in range(0, end, at_once):
                    rows = slice(start, min(start + at_once, end))
                    given = {
                        "episode": np.full(rows.stop - start, number),
                        "t": np.arange(start, rows.stop),
                    }
                    columns = [
                        given[name] if groups and name in given else arrays[name][rows]
                        for name in wanted
                    ]
                    yield _batch(dict(zip(wanted, columns, strict=True)))

    return Table(str(path), schema, read, length, about=about)


def _only_rows(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the arrays that have one entry a row: as many as there are rewards, or actions."""
    rows = {name: len(a) for name, a in arrays.items() if a.ndim and a.dtype != object}
    counts = [many for name, many in rows.items() if re.match(r"rew|act", name.lower())]
    many = counts[0] if counts else max(rows.values(), default=0)
    return {name: a for name, a in arrays.items() if a.dtype == object or rows.get(name) == many}


def _length(arrays: Mapping[str, Any]) -> int:
    """Return how many rows arrays have that can be used."""
    return min((len(a) for a in arrays.values() if a.dtype != object), default=0)


def of_arrays(name: str, arrays: Mapping[str, Array]) -> Table:
    """Take arrays that have an entry for each row; others are left out."""
    kept = _only_rows(arrays)
    schema = pa.schema([_field(key, a.dtype, a.shape[1:]) for key, a in kept.items()])
    length = _length(kept)
    at_once = rows_at_once(sum(a.nbytes for a in kept.values()) / max(length, 1))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for start in range(0, length, at_once):
            yield _batch({key: kept[key][start : start + at_once] for key in wanted})

    return Table(name, schema, read, length)


def _field(name: str, dtype: Any, shape: tuple[int, ...]) -> pa.Field:
    """Describe a column of arrays; one that cannot be used says what it holds."""
    if dtype.kind in "SU" and not shape:
        return pa.field(name, pa.string())
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        return unusable(name, f"holds {dtype}: give plain numbers")
    if not shape:
        return pa.field(name, pa.from_numpy_dtype(dtype))
    plain = np.dtype(np.uint8) if dtype.kind == "b" else dtype
    return pa.field(name, pa.fixed_shape_tensor(pa.from_numpy_dtype(plain), shape))


def _batch(arrays: Mapping[str, Array]) -> pa.RecordBatch:
    columns = []
    for array in arrays.values():
        plain = array.astype(array.dtype.newbyteorder("="), copy=False)
        if plain.dtype.kind == "S":
            plain = np.char.decode(plain, "utf-8")
        if plain.ndim > 1:
            plain = plain.view(np.uint8) if plain.dtype.kind == "b" else plain
            whole = np.ascontiguousarray(plain)
            columns.append(pa.FixedShapeTensorArray.from_numpy_ndarray(whole))
        else:
            columns.append(pa.array(plain))
    return pa.RecordBatch.from_arrays(columns, list(arrays))
