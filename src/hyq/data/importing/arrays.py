"""Arrays as tables: in memory, NPZ and HDF5."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa

from hyq.core.errors import HyqError
from hyq.core.memory import check_room
from hyq.core.types import Array
from hyq.data.importing.table import Table, natural, rows_at_once, unusable

Arrays = Mapping[str, Any]
"""Arrays by name, of NumPy or on disk, each with an entry for each row."""


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


def of_arrays(name: str, arrays: Arrays) -> Table:
    """Take arrays that have an entry for each row; others are left out."""
    return _table(name, lambda: nullcontext([_only_rows(arrays)]))


def hdf5(path: Path) -> Table:
    """Read arrays as D4RL lays them out, or a group for each episode, as robomimic does."""
    try:
        import h5py  # noqa: PLC0415
    except ImportError:
        raise HyqError(f"{path} needs h5py: pip install 'hyq[minari]'") from None

    def arrays_in(group: Any) -> Arrays:
        found: dict[str, Any] = {}

        def visit(name: str, part: Any) -> None:
            # What lies in other files is none of this one's.
            if isinstance(part, h5py.Dataset) and not (part.is_virtual or part.external):
                found[name.replace("/", ".")] = part

        group.visititems(visit)  # follows no links out of the file, and visits nothing twice
        rows = _only_rows(found)
        if groups and any("obs." in name for name in rows):  # robomimic's simulator states
            rows.pop("states", None)
        return rows

    @contextmanager
    def opened() -> Iterator[list[Arrays]]:
        with h5py.File(path) as file:
            yield [arrays_in(file[group]) for group in groups or ["/"]]

    about: dict[str, Any] = {}
    with h5py.File(path) as file:
        demos = sorted(map(Path, file["data"]), key=natural) if "data" in file else []
        groups = [f"data/{name}" for name in demos if isinstance(file[f"data/{name}"], h5py.Group)]
        if groups and (environment := file["data"].attrs.get("env_args")):
            about = {"environment": json.loads(environment)}
    return _table(str(path), opened, episodes=bool(groups), about=about)


def _table(
    name: str,
    opened: Callable[[], AbstractContextManager[list[Arrays]]],
    *,
    episodes: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Table:
    """Read parts that hold the same arrays, one after the other; each may be an episode."""
    with opened() as parts:
        fields = [_field(key, a.dtype, a.shape[1:]) for key, a in parts[0].items()]
        row_bytes = sum(a.dtype.itemsize * int(np.prod(a.shape[1:])) for a in parts[0].values())
        length = sum(map(_length, parts))
    if episodes:
        fields += [pa.field("episode", pa.int64()), pa.field("t", pa.int64())]
    at_once = rows_at_once(row_bytes)

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with opened() as parts:
            for number, part in enumerate(parts):
                for start in range(0, _length(part), at_once):
                    t = np.arange(start, min(start + at_once, _length(part)))
                    numbered = {"episode": np.full(len(t), number), "t": t} if episodes else {}
                    rows = slice(start, start + len(t))
                    found = {key: part[key][rows] for key in wanted if key not in numbered}
                    yield _batch(found | numbered)

    return Table(name, pa.schema(fields), read, length, about=about or {})


def _only_rows(arrays: Arrays) -> dict[str, Any]:
    """Keep the arrays that have one entry a row: as many as there are rewards, or actions."""
    rows = {name: len(a) for name, a in arrays.items() if a.ndim and a.dtype != object}
    counts = [many for name, many in rows.items() if re.match(r"rew|act", name.lower())]
    many = counts[0] if counts else max(rows.values(), default=0)
    return {name: a for name, a in arrays.items() if a.dtype == object or rows.get(name) == many}


def _length(arrays: Arrays) -> int:
    """Return how many rows arrays have that can be used."""
    return min((len(a) for a in arrays.values() if a.dtype != object), default=0)


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
