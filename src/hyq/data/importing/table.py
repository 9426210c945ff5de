"""A table that is read as a stream of Arrow record batches, whatever holds it."""

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
    """Without structs: their fields have names of their own, joined by dots."""
    read: Read
    """Read some columns, and others where that is as easy."""
    rows: int = 0
    """How many there are, where that is known before they are read."""
    text: bool = False
    """Whether numbers were written as text, without a type of their own."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about its origin."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Go through some columns."""
        with reading(self.name):
            for batch in self.read(names):
                yield batch.select(list(names))


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


def flat(table: pa.Table) -> pa.Table:
    """Take structs apart: their fields become columns, named by their path."""
    while any(map(pa.types.is_struct, table.schema.types)):
        table = table.flatten()
    names = table.schema.names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise HyqError(f"there are several columns {repeated!r}: give each its own name")
    return table


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
