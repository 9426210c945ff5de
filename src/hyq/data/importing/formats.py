"""Files and tables of every format as streams of Arrow record batches."""

import glob
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from hyq.core.errors import HyqError, in_one_line
from hyq.core.types import Array

BATCH_BYTES = 2**24
"""About how much of a table is in memory at a time."""
LONGEST_LINE = 2**26
"""Bytes of a line of JSON beyond which it is taken for something else."""

DEEPEST = 1000
"""Levels of nested JSON."""
UNUSABLE = b"unusable"
"""Where a field says what it holds, if that is nothing that can be imported."""

Read = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Table:
    """Rows that can be read from the beginning any number of times."""

    name: str
    """The file, for messages."""
    schema: pa.Schema
    """Fields of structs have names of their own, joined by dots."""
    read: Read
    """Read some columns."""
    text: bool = False
    """Whether numbers were written as text, without a type of their own."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about its origin."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Go through some columns, with plain types."""
        tops = list(dict.fromkeys(self._top(name) for name in names))
        with reading(self.name):
            for batch in self.read(tops):
                yield _flat(batch).select(list(names))

    def _top(self, name: str) -> str:
        """Return the column of the file that holds a column."""
        return (self.schema.field(name).metadata or {}).get(b"top", name.encode()).decode()


def open_tables(source: Any) -> list[Table]:
    """Open files by name, pattern or folder, or take tables that are in memory."""
    if isinstance(source, str | Path):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(s, str | Path) for s in source):
        return [_opened(path) for path in files_of(source)]
    if isinstance(source, Mapping):
        return [_of_arrays("the arrays", {str(k): np.asarray(v) for k, v in source.items()})]
    return [_of_frame(source)]


def files_of(names: Sequence[str | Path]) -> list[Path]:
    """Find the files of names, patterns and folders, in an order in which part2 precedes part10."""
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        inside = [path]
        if path.is_dir():
            inside = [one for one in path.rglob("*") if _suffix(one) in FORMATS and one.is_file()]
            inside = [one for one in inside if not one.name.startswith((".", "_"))]
        elif not path.exists() and glob.has_magic(str(name)):
            inside = [Path(one) for one in glob.glob(str(name), recursive=True)]
        if not inside:
            raise HyqError(f"{name} has no file that can be imported: {_KINDS}")
        found.update(dict.fromkeys(sorted(inside, key=_natural)))
    return list(found)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Say in one line what is wrong with a file; the libraries that read it may fail in any way."""
    try:
        yield
    except (HyqError, GeneratorExit):
        raise
    except MemoryError as error:
        raise HyqError(f"{name} does not fit into memory: {in_one_line(error)}") from None
    except Exception as error:
        raise HyqError(f"cannot read {name}: {in_one_line(error)[:300]}") from error


def _opened(path: Path) -> Table:
    with reading(str(path)):
        if not path.exists():
            raise HyqError(f"no file {str(path)!r}: give a file, a folder or a pattern")
        if not path.is_file():  # a pipe would never end
            raise HyqError(f"{path} is not a plain file")
        if _suffix(path) not in FORMATS:
            raise HyqError(f"cannot tell what {path} holds by its ending: {_KINDS}")
        if path.stat().st_size == 0:
            raise HyqError(f"{path} is empty")
        table = FORMATS[_suffix(path)](path)
    parts = dict(part.split("=", 1) for part in path.parent.parts if part.count("=") == 1)
    return _with_constants(table, {name: unquote(value) for name, value in parts.items()})


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def _natural(path: Path) -> list[Any]:
    """Order text by letters and numbers by size."""
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]


def _csv(path: Path) -> Table:
    with pa.input_stream(str(path)) as stream:
        head = stream.read(2**16).decode("utf-8-sig", errors="replace")
    header = head.partition("\n")[0]
    parse = pacsv.ParseOptions(
        delimiter=max(",;\t|", key=header.count), newlines_in_values='"' in head
    )
    options = pacsv.ReadOptions(block_size=BATCH_BYTES, use_threads=False)

    def stream_of(**convert: Any) -> Any:
        kinds = pacsv.ConvertOptions(strings_can_be_null=True, **convert)
        return pacsv.open_csv(str(path), options, parse, kinds)

    first = stream_of()
    names = first.schema.names
    if all(re.fullmatch(r"[-+\d.eE\s]*", name) for name in names):
        raise HyqError(f"{path} has no header: its first line must name the columns")
    kinds = {field.name: field.type for field in first.schema}
    try:
        for _ in first:  # types are guessed from the first block, and may not hold for the others
            pass
    except pa.ArrowInvalid as error:
        if "conversion error" not in str(error):
            raise
        kinds = _kinds_of_text(stream_of(column_types=dict.fromkeys(names, pa.string())))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from stream_of(column_types=kinds, include_columns=list(wanted))

    return Table(str(path), _flat_schema(pa.schema(kinds.items())), read, text=True)


def _kinds_of_text(batches: Iterator[pa.RecordBatch]) -> dict[str, pa.DataType]:
    """Find the narrowest type that holds all of each column."""
    order = [pa.null(), pa.int64(), pa.bool_(), pa.float64(), pa.string()]
    levels: dict[str, int] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            text = pc.utf8_trim_whitespace(column)
            while True:
                level = levels.setdefault(name, 0)
                try:
                    if level or column.null_count < len(column):
                        text.cast(order[level])
                    break
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    levels[name] += 1
    return {name: order[level] for name, level in levels.items()}


def _parquet(path: Path) -> Table:
    about = pq.ParquetFile(path)
    size = sum(about.metadata.row_group(i).total_byte_size for i in range(about.num_row_groups))
    rows = _rows_at_once(size / max(about.metadata.num_rows, 1))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, buffer_size=2**20) as file:
            yield from file.iter_batches(rows, columns=list(wanted))

    return Table(str(path), _flat_schema(about.schema_arrow), read)


def _json_lines(path: Path) -> Table:
    def chunks() -> Iterator[pa.Table]:
        rest = b""
        with pa.input_stream(str(path)) as stream:
            while piece := stream.read(BATCH_BYTES):
                whole, newline, after = piece.rpartition(b"\n")
                if newline:
                    yield _parsed_json(rest + whole + newline)
                rest = after if newline else rest + piece
                if len(rest) > LONGEST_LINE:
                    raise HyqError(f"{path} is not JSON lines: write one object a line")
        if rest.strip():
            yield _parsed_json(rest)

    schema = pa.unify_schemas((part.schema for part in chunks()), promote_options="permissive")

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        kinds = pa.schema([schema.field(name) for name in wanted])
        for part in chunks():
            columns = [
                part[one.name] if one.name in part.schema.names else pa.nulls(len(part), one.type)
                for one in kinds
            ]
            yield from pa.table(columns, names=kinds.names).cast(kinds).to_batches()

    return Table(str(path), _flat_schema(schema), read, text=True)


def _parsed_json(lines: bytes) -> pa.Table:
    for line in lines.split(b"\n"):
        if len(line) > DEEPEST:
            # Brackets in text may be open for good, but there are not so many.
            text = np.frombuffer(line, np.uint8) | 0x20  # [ becomes {, and ] becomes }
            depth = np.cumsum((text == ord("{")).astype(np.int32) - (text == ord("}")))
            if depth.max() > DEEPEST:  # the parser would overflow its stack
                raise HyqError(f"an object of JSON is nested {depth.max():,} levels deep")
    return pajson.read_json(pa.BufferReader(lines))


def _npz(path: Path) -> Table:
    with ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > 2**34:
        raise HyqError(f"{path} holds {size / 2**30:,.0f} GB: save it as Parquet to import it")
    arrays: dict[str, Array] = {}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            try:
                arrays[name] = file[name]
            except ValueError as error:
                if "pickle" not in str(error):
                    raise
                arrays[name] = np.zeros(0, object)  # says what it is, should it be needed
    return _of_arrays(str(path), arrays)


def _hdf5(path: Path) -> Table:
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
        demos = sorted(map(Path, file["data"]), key=_natural) if "data" in file else []
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
    if groups:
        fields += [pa.field("episode", pa.int64()), pa.field("t", pa.int64())]
    schema = pa.schema(fields)
    at_once = _rows_at_once(row_bytes)

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with h5py.File(path) as file:
            for number, group in enumerate(groups or ["/"]):
                arrays = _only_rows(arrays_in(file[group]))
                length = min((len(a) for a in arrays.values() if a.dtype != object), default=0)
                for start in range(0, length, at_once):
                    rows = slice(start, min(start + at_once, length))
                    given = {
                        "episode": np.full(rows.stop - start, number),
                        "t": np.arange(start, rows.stop),
                    }
                    columns = [
                        given[name] if groups and name in given else arrays[name][rows]
                        for name in wanted
                    ]
                    yield _batch(dict(zip(wanted, columns, strict=True)))

    return Table(str(path), schema, read, about=about)


def _only_rows(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the arrays that have one entry a row: as many as there are rewards, or actions."""
    rows = {name: len(a) for name, a in arrays.items() if a.ndim and a.dtype != object}
    counts = [many for name, many in rows.items() if re.match(r"rew|act", name.lower())]
    many = counts[0] if counts else max(rows.values(), default=0)
    return {name: a for name, a in arrays.items() if a.dtype == object or rows.get(name) == many}


def _of_arrays(name: str, arrays: Mapping[str, Array]) -> Table:
    kept = _only_rows(arrays)
    schema = pa.schema([_field(key, a.dtype, a.shape[1:]) for key, a in kept.items()])
    length = min((len(a) for a in kept.values() if a.dtype != object), default=0)
    at_once = _rows_at_once(sum(a.nbytes for a in kept.values()) / max(length, 1))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for start in range(0, length, at_once):
            yield _batch({key: kept[key][start : start + at_once] for key in wanted})

    return Table(name, schema, read)


def _of_frame(frame: Any) -> Table:
    """Take what pandas, polars and Arrow have in memory; none of them need be installed."""
    with reading("the table"):
        if isinstance(frame, pa.Table):
            table = frame
        elif hasattr(frame, "to_arrow"):
            table = frame.to_arrow()
        elif hasattr(frame, "iloc"):
            table = pa.Table.from_pandas(frame, preserve_index=False)
        elif hasattr(frame, "__arrow_c_stream__"):
            table = pa.table(frame)
        else:
            raise HyqError(
                f"cannot import a {type(frame).__name__}: give files, a data frame, an Arrow "
                "table, a Minari dataset or a dictionary of arrays"
            )
    at_once = _rows_at_once(table.nbytes / max(len(table), 1))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from table.select(list(wanted)).to_batches(max_chunksize=at_once)

    return Table("the table", _flat_schema(table.schema), read)


def _with_constants(table: Table, constants: Mapping[str, str]) -> Table:
    """Add columns that a partitioned folder says in its names, such as `episode=3`."""
    new = {name: value for name, value in constants.items() if name not in table.schema.names}
    values = {name: int(v) if re.fullmatch(r"-?\d{1,18}", v) else v for name, v in new.items()}
    schema = table.schema
    for name, value in values.items():
        schema = schema.append(pa.field(name, pa.scalar(value).type))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        stored = [name for name in wanted if name not in values]
        for batch in table.read(stored or table.schema.names[:1]):
            columns = [
                pa.repeat(values[name], len(batch)) if name in values else batch[name]
                for name in wanted
            ]
            yield pa.RecordBatch.from_arrays(columns, list(wanted))

    return Table(table.name, schema, read, table.text, table.about) if values else table


def _flat_schema(schema: pa.Schema) -> pa.Schema:
    """Name the fields of structs by their path; each remembers the column that it is part of."""
    repeated = [name for name in schema.names if schema.names.count(name) > 1]
    if repeated:
        raise HyqError(f"there are several columns {repeated[0]!r}: give each its own name")
    parts = [(one, one.name) for one in schema]
    while any(pa.types.is_struct(one.type) for one, _ in parts):
        parts = list(
            itertools.chain.from_iterable(
                [(inner, top) for inner in one.flatten()]
                if pa.types.is_struct(one.type)
                else [(one, top)]
                for one, top in parts
            )
        )
    return pa.schema([one.with_metadata({"top": top}) for one, top in parts])


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    while any(pa.types.is_struct(kind) for kind in batch.schema.types):
        whole = pa.Table.from_batches([batch]).flatten().combine_chunks()
        batch = pa.RecordBatch.from_arrays(
            [
                column.chunk(0) if column.num_chunks else pa.array([], column.type)
                for column in whole.columns
            ],
            whole.schema.names,
        )
    return batch


def _rows_at_once(row_bytes: float) -> int:
    return int(min(max(BATCH_BYTES / max(row_bytes, 1.0), 1), 2**16))


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


def unusable(name: str, why: str) -> pa.Field:
    """Describe a column that raises when it is needed."""
    return pa.field(name, pa.null(), metadata={UNUSABLE: why})


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


FORMATS: dict[str, Callable[[Path], Table]] = {
    **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys((".parquet", ".pq"), _parquet),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_lines),
    ".npz": _npz,
    **dict.fromkeys((".hdf5", ".h5"), _hdf5),
}
_KINDS = f"files end in {', '.join(FORMATS)}, text also in .gz"
