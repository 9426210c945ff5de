"""Files and tables of every format as streams of Arrow record batches."""

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from hyq.core.errors import HyqError
from hyq.data.importing.arrays import hdf5, npz, of_arrays
from hyq.data.importing.table import BATCH_BYTES, Table, flat, natural, reading, rows_at_once

LONGEST_LINE = 2**26
"""Bytes of a line of JSON beyond which it is taken for something else."""

LONGEST_HEADER = 2**18
"""Bytes of the first line of a CSV file; a wider one has a column of lists, or is another thing."""
DEEPEST = 1000
"""Levels of nested JSON."""


def open_tables(source: Any) -> list[Table]:
    """Open files by name, pattern or folder, or take tables that are in memory."""
    if isinstance(source, str | Path):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(s, str | Path) for s in source):
        return [_opened(path) for path in files_of(source)]
    if isinstance(source, Mapping):
        return [of_arrays("the arrays", {str(k): np.asarray(v) for k, v in source.items()})]
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
        found.update(dict.fromkeys(sorted(inside, key=natural)))
    return list(found)


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


def _csv(path: Path) -> Table:
    with pa.input_stream(str(path)) as stream:
        head = stream.read(LONGEST_HEADER).decode("utf-8-sig", errors="replace")
    header, newline, _ = head.replace("\r", "\n").partition("\n")
    if not newline and len(head) > LONGEST_HEADER // 4:
        raise HyqError(
            f"{path} has no end of its first line within {LONGEST_HEADER // 1024} KB: give long "
            "rows as Parquet, with a column of lists"
        )
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

    return Table(str(path), flat(pa.schema(kinds.items()).empty_table()).schema, read, text=True)


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
    rows = rows_at_once(size / max(about.metadata.num_rows, 1))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, buffer_size=2**20) as file:
            for batch in file.iter_batches(rows, columns=list(wanted)):
                yield from flat(pa.Table.from_batches([batch])).to_batches()

    schema = flat(about.schema_arrow.empty_table()).schema
    return Table(str(path), schema, read, about.metadata.num_rows)


def _json_lines(path: Path) -> Table:
    def chunks() -> Iterator[pa.Table]:
        rest = b""
        with pa.input_stream(str(path)) as stream:
            while piece := stream.read(BATCH_BYTES):
                whole, newline, after = piece.rpartition(b"\n")
                if newline:
                    yield flat(_parsed_json(rest + whole + newline))
                rest = after if newline else rest + piece
                if len(rest) > LONGEST_LINE:
                    raise HyqError(f"{path} is not JSON lines: write one object a line")
        if rest.strip():
            yield flat(_parsed_json(rest))

    schema = pa.unify_schemas((part.schema for part in chunks()), promote_options="permissive")

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        kinds = pa.schema([schema.field(name) for name in wanted])
        for part in chunks():
            columns = [
                part[one.name] if one.name in part.schema.names else pa.nulls(len(part), one.type)
                for one in kinds
            ]
            yield from pa.table(columns, names=kinds.names).cast(kinds).to_batches()

    return Table(str(path), schema, read, text=True)


def _parsed_json(lines: bytes) -> pa.Table:
    for line in lines.split(b"\n"):
        if len(line) > DEEPEST:
            # Brackets in text may be open for good, but there are not so many.
            text = np.frombuffer(line, np.uint8) | 0x20  # [ becomes {, and ] becomes }
            depth = np.cumsum((text == ord("{")).astype(np.int32) - (text == ord("}")))
            if depth.max() > DEEPEST:  # the parser would overflow its stack
                raise HyqError(f"an object of JSON is nested {depth.max():,} levels deep")
    return pajson.read_json(pa.BufferReader(lines))


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
        table = flat(table)
    at_once = rows_at_once(table.nbytes / max(len(table), 1))

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from table.select(list(wanted)).to_batches(max_chunksize=at_once)

    return Table("the table", table.schema, read, len(table))


def _with_constants(table: Table, constants: Mapping[str, str]) -> Table:
    """Add columns that a partitioned folder says in its names, such as `episode=3`."""
    values = {
        name: pa.scalar(int(value) if re.fullmatch(r"-?\d{1,18}", value) else value)
        for name, value in constants.items()
        if name not in table.schema.names
    }
    fields = [pa.field(name, value.type) for name, value in values.items()]

    def read(wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
        stored = [name for name in wanted if name not in values]
        for batch in table.read(stored or table.schema.names[:1]):
            new = [pa.repeat(value, len(batch)) for value in values.values()]
            names = [*batch.schema.names, *values]
            yield pa.RecordBatch.from_arrays([*batch.columns, *new], names)

    return replace(table, schema=pa.schema([*table.schema, *fields]), read=read)


FORMATS: dict[str, Callable[[Path], Table]] = {
    **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys((".parquet", ".pq"), _parquet),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_lines),
    ".npz": npz,
    **dict.fromkeys((".hdf5", ".h5"), hdf5),
}
_KINDS = f"files end in {', '.join(FORMATS)}, text also in .gz"
