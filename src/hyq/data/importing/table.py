"""A table that is read as a stream of Arrow record batches, whatever holds it."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from hyq.core.errors import HyqError, in_one_line

BATCH_BYTES = 2**24
"""About how much of a table is in memory at a time."""
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
    rows: int = 0
    """How many there are, where that is known before they are read."""
    text: bool = False
    """Whether numbers were written as text, without a type of their own."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about its origin."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Go through some columns, with plain types."""
        tops = list(dict.fromkeys(self._top(name) for name in names))
        with reading(self.name):
            for batch in self.read(tops):
                yield flat(batch).select(list(names))

    def _top(self, name: str) -> str:
        """Return the column of the file that holds a column."""
        return (self.schema.field(name).metadata or {}).get(b"top", name.encode()).decode()


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


def flat_schema(schema: pa.Schema) -> pa.Schema:
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


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Take structs apart, as `flat_schema` names their fields."""
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


def rows_at_once(row_bytes: float) -> int:
    """Return how many rows make a batch."""
    return int(min(max(BATCH_BYTES / max(row_bytes, 1.0), 1), 2**16))


def unusable(name: str, why: str) -> pa.Field:
    """Describe a column that raises when it is needed."""
    return pa.field(name, pa.null(), metadata={UNUSABLE: why})


def natural(path: Path) -> list[Any]:
    """Order text by letters and numbers by size."""
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts]
