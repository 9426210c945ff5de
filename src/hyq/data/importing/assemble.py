"""From tables to a dataset: two passes, one over what decides the order and one over the rest."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hyq.core.errors import HyqError
from hyq.core.files import new_directory
from hyq.core.memory import check_room, return_freed_memory
from hyq.core.types import Array, BoolArray, IntArray
from hyq.data.columns import Column, release
from hyq.data.dataset import Dataset, observation_files
from hyq.data.frames import CompressedFrames, PackedFrames, is_image
from hyq.data.importing.columns import Columns, find_columns
from hyq.data.importing.formats import open_tables
from hyq.data.importing.order import Arrangement, Finding, Log, Plan, Rules, doubt
from hyq.data.importing.table import Table, unusable
from hyq.data.importing.values import (
    BadRowError,
    check_present,
    codes,
    fingerprints,
    is_text,
    numbers,
    plain,
    plain_type,
    stacked,
    times,
    truths,
    without_value,
)

BYTES_A_ROW = 40
"""Memory that it takes to sort."""
_CONTROL = ("terminated", "truncated", "episode", "time", "here", "there")
"""What may be read of every row."""
TESTED_BYTES = 2**26
"""How much of the observations is tested for continuity, where no column says what follows what."""


@dataclass(frozen=True)
class Imported:
    """A dataset, and how it came about."""

    dataset: Dataset
    columns: Columns
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Named:
    """Columns that the user names: by name, several with commas, or patterns such as 'x_*'."""

    observation: str | None = None
    """What the agent saw; names with dots and one beginning make a dictionary."""
    action: str | None = None
    """What it did: numbers, or text, which is numbered in alphabetical order."""
    reward: str | None = None
    """What it was paid."""
    next_observation: str | None = None
    """What it saw then, where rows say so."""
    terminated: str | None = None
    """Where the episode ended by itself."""
    truncated: str | None = None
    """Where it was cut off, as by a time limit."""
    episode: str | None = None
    """Which episode the row is of."""
    time: str | None = None
    """Where in its episode the row is."""


def import_tables(
    source: Any,
    *,
    out: Path | None = None,
    columns: Named = Named(),
    rules: Rules = Rules(),
    episodes_per_file: bool = False,
) -> Imported:
    """Read files or tables as a dataset, into a new directory or into memory.

    Args:
        source: Files by name, pattern or folder; a data frame; or a dictionary of arrays.
        out: New directory for the dataset, which is then read from there piece by piece.
        columns: Columns that are not found by their name.
        rules: What to do about what is wrong.
        episodes_per_file: Whether each file numbers its episodes anew.
    """
    imported = _Import(open_tables(source), vars(columns), rules, episodes_per_file)
    if out is None:
        return imported.run(None)
    with new_directory(out) as draft:
        made = imported.run(draft)
        made.dataset.write(draft)
    return made  # what it has mapped stays there when the directory gets its name


class _Import:
    def __init__(
        self, tables: Sequence[Table], given: Mapping[str, Any], rules: Rules, per_file: bool
    ) -> None:
        self._tables, self._rules, self._per_file = tables, rules, per_file
        schema = _one_schema(tables)
        self.columns = columns = find_columns(schema, given)
        self._types = {name: schema.field(name).type for name in schema.names}
        if per_file and columns.episode is None:
            raise HyqError("episodes_per_file needs a column for the episode: there is none")
        words = [name for name in columns.action if is_text(self._types[name])]
        if words and len(columns.action) > 1:
            raise HyqError(
                f"column {words[0]!r} holds text: only a single action can be named by it"
            )
        self._named_action = words[0] if words else None
        self._vocabulary: list[str] = []
        self._text = all(table.text for table in tables)

    def run(self, draft: Path | None) -> Imported:
        columns = self.columns
        with_next = bool(columns.next_observation)
        # What was read for the plan is not held while all rows are read.
        plan = Arrangement(self._log(), self._rules, with_next, columns.done_is_over).plan(
            self._same
        )
        self._check_continuity(plan)
        observation, action, reward = self._filled(plan, draft)
        provenance = {
            **next((dict(table.about) for table in self._tables if table.about), {}),
            "imported": {
                "files": [Path(table.name).name for table in self._tables][:1000],
                "columns": columns.encoded(),
                "rules": {k: v for k, v in asdict(self._rules).items() if v is not None},
                "mended": [asdict(finding) for finding in plan.findings],
                **({"actions": self._vocabulary} if self._vocabulary else {}),
            },
        }
        dataset = Dataset(
            observation,
            action,
            reward,
            np.zeros(len(action), np.bool_),
            plan.length,
            plan.terminated,
            plan.timestep,
            provenance,
        )
        return Imported(dataset, columns, plan.findings)

    def _rows(self, names: Sequence[str]) -> Iterator[tuple[int, int, Table, pa.RecordBatch]]:
        """Go through batches: their first row, of all and of the table, the table, the batch."""
        row = 0
        for table in self._tables:
            before = row
            for batch in table.batches(names):
                kinds = [self._types[name] for name in names]
                columns = [
                    column if column.type == kind else plain(column).cast(kind)
                    for column, kind in zip(batch.columns, kinds, strict=True)
                ]
                yield row, row - before, table, pa.RecordBatch.from_arrays(columns, list(names))
                row += len(batch)

    def _log(self) -> Log:
        """Read what decides order and wholeness."""
        columns, rules = self.columns, self._rules
        names = columns.control() or [columns.reward]
        if self._named_action is not None:
            names = list(dict.fromkeys([*names, self._named_action]))
        if columns.next_observation or rules.missing == "drop":
            names = list(dict.fromkeys(names + columns.data()))
        found: dict[str, list[Array]] = {}
        ids: dict[Any, int] = {}
        words: set[str] = set()
        ends = dict.fromkeys((table.name for table in self._tables), 0)
        _check_room(sum(table.rows for table in self._tables))
        for row, before, table, batch in self._rows(names):
            ends[table.name] = row + len(batch)
            if row % 2**20 < len(batch):
                _check_room(row)
            gone = without_value(batch)
            kept = np.flatnonzero(~gone)
            if rules.missing == "raise" and len(kept) < len(batch):
                with located(table, before):
                    check_present(batch)
            control = dict.fromkeys(_CONTROL, np.zeros(0, np.bool_))
            if len(kept):
                with located(table, before, kept):
                    # A row that is left out may hold anything.
                    control = self._control(table, _taken(batch, kept), ids, words)
            for name, values in {"dropped": gone, **control}.items():
                whole = values
                if len(values) < len(batch):
                    whole = np.zeros(len(batch), values.dtype)
                    whole[kept] = values
                found.setdefault(name, []).append(whole)
        if not found or all(gone.all() for gone in found["dropped"]):
            raise HyqError("there are no rows, or none that has all values")
        joined: dict[str, Any] = {n: np.concatenate(found.pop(n)) for n in list(found)}
        return_freed_memory()
        self._vocabulary = sorted(words)
        if ids:  # numbered as they came
            rank = np.argsort([ids[key] for key in sorted(ids)]).astype(np.int32)
            joined["episode"] = rank[joined["episode"]]
        return Log(
            joined["terminated"],
            joined["truncated"],
            None if columns.episode is None else joined["episode"],
            None if columns.time is None else joined["time"],
            (joined["here"], joined["there"]) if columns.next_observation else None,
            joined["dropped"] if rules.missing == "drop" else None,
            list(ends),
            np.maximum.accumulate(list(ends.values())),
        )

    def _control(
        self, table: Table, batch: pa.RecordBatch, ids: dict[Any, int], words: set[str]
    ) -> dict[str, Array]:
        """Read a batch for the log; ids of episodes and names of actions are collected."""
        columns = self.columns
        found: dict[str, Array] = {}
        for what, name in (("terminated", columns.terminated), ("truncated", columns.truncated)):
            none = np.zeros(len(batch), np.bool_)
            found[what] = none if name is None else truths(name, batch[name])
        if columns.time is not None:
            time = times(columns.time, batch[columns.time])
            small = time.dtype.kind == "i" and ((time > -(2**30)) & (time < 2**30)).all()
            found["time"] = time.astype(np.int32) if small else time
        if columns.episode is not None:
            coded = _hashable(columns.episode, batch[columns.episode]).dictionary_encode()
            scope = table.name if self._per_file else ""
            keys = [(scope, key) for key in coded.dictionary.to_pylist()]
            numbered = np.array([ids.setdefault(key, len(ids)) for key in keys], np.int32)
            found["episode"] = numbered[coded.indices.to_numpy()]
        if self._named_action is not None:
            words.update(plain(batch[self._named_action]).unique().cast(pa.string()).to_pylist())
        if columns.next_observation:
            for what, parts in (
                ("here", columns.observation),
                ("there", columns.next_observation),
            ):
                in_order = [name for key in sorted(parts) for name in parts[key]]
                found[what] = fingerprints(in_order, batch).astype(np.uint32)
        return found

    def _same(self, one: IntArray, other: IntArray) -> BoolArray:
        """Tell which of two rows have equal contents."""
        names = self.columns.data() + self.columns.control()
        wanted = np.union1d(one, other)
        prints = np.empty(len(wanted), np.uint64)
        for row, _, _, batch in self._rows(names):
            low, high = np.searchsorted(wanted, (row, row + len(batch)))
            if low < high:
                prints[low:high] = fingerprints(names, _taken(batch, wanted[low:high] - row))
        return prints[np.searchsorted(wanted, one)] == prints[np.searchsorted(wanted, other)]

    def _check_continuity(self, plan: Plan) -> None:
        """Raise for a doubtful order of rows, where nothing else says what follows what."""
        columns = self.columns
        if columns.time or columns.next_observation or self._rules.order == "as-is":
            return
        parts: list[Array] = []
        rows = 0
        names = [name for part in columns.observation.values() for name in part]
        for _, before, table, batch in self._rows(names):
            with located(table, before):
                values = {name: numbers(name, batch[name]) for name in names}
            flat = [value.reshape(len(batch), -1) for value in values.values()]
            parts.append(np.concatenate(flat, axis=1, dtype=np.float32, casting="unsafe"))
            rows += len(batch)
            if rows * parts[-1].shape[1] * 4 > TESTED_BYTES:
                break
        order = np.argsort(plan.slot[:rows], kind="stable")
        order = order[plan.slot[order] >= 0]
        first = np.cumsum(plan.length + 1) - plan.length - 1
        why = doubt(np.concatenate(parts)[order], np.isin(plan.slot[order], first))
        if why:
            raise HyqError(
                f"it is doubtful whether the rows are in order: {why}. Name the columns for "
                "episode and time, or say that they are with order='as-is'"
            )

    def _filled(self, plan: Plan, draft: Path | None) -> tuple[Any, Any, Any]:
        """Read all rows and put each where it belongs."""
        columns, store = self.columns, _Store(draft)
        last = np.cumsum(plan.length + 1) - 1
        observations = int(last[-1]) + 1
        keys = sorted(columns.observation)
        keyed = keys != [""]
        files = dict(zip(keys, observation_files(keys if keyed else None), strict=True))
        for row, before, table, whole in self._rows(columns.data()):
            slot = plan.slot[row : row + len(whole)].astype(np.int64)
            if len(slot) < len(whole):
                raise HyqError(f"{table.name} changed while it was read")
            rows = np.flatnonzero(slot >= 0)
            if not len(rows):
                continue
            slot = slot[rows]
            with located(table, before, rows):
                values = self._values(_taken(whole, rows))
            episode = np.searchsorted(last, slot)
            acts = slot < last[episode]  # the last observation of an episode is not acted in
            ends = (slot == last[episode] - 1) & (
                plan.terminated[episode] | bool(columns.next_observation)
            )
            for key, file in files.items():
                names = columns.observation[key]
                store.put(file, observations, slot, self._laid(names, values), table.name)
                if ends.any():
                    after = columns.next_observation.get(key, names)
                    end = self._laid(after, {name: v[ends] for name, v in values.items()})
                    store.put(file, observations, slot[ends] + 1, end, table.name)
            index, transitions = (slot - episode)[acts], observations - len(last)
            for file, part in (("action", self._action(values)), ("reward", self._reward(values))):
                store.put(file, transitions, index, part[acts], table.name)
        seen = {key: store.column(file) for key, file in files.items()}
        return seen if keyed else seen[""], store.column("action"), store.column("reward")

    def _values(self, batch: pa.RecordBatch) -> dict[str, Array]:
        check_present(batch)
        return {
            name: codes(name, batch[name], self._vocabulary)
            if name == self._named_action
            else numbers(name, batch[name])
            for name in batch.schema.names
        }

    def _laid(self, names: Sequence[str], values: Mapping[str, Array]) -> Array:
        """Lay columns side by side; fractions that were written as text in single precision."""
        fractions = any(values[name].dtype.kind == "f" for name in names)
        return stacked(names, values, np.float32 if self._text and fractions else None)

    def _action(self, values: Mapping[str, Array]) -> Array:
        names = self.columns.action
        action = self._laid(names, values)
        if action.dtype.kind == "f":
            return action
        if action.dtype == np.uint64 and len(action) and action.max() >= 2**63:
            raise HyqError(f"column {names[0]!r} has actions beyond 64 bits with a sign")
        return action.astype(np.int64)

    def _reward(self, values: Mapping[str, Array]) -> Array:
        reward = values[self.columns.reward]
        reward = reward.reshape(len(reward), -1)
        if reward.shape[1] != 1:
            raise HyqError(f"column {self.columns.reward!r} has {reward.shape[1]} values a row")
        return reward[:, 0].astype(np.float32)


def _check_room(rows: int) -> None:
    check_room(BYTES_A_ROW * rows, f"to sort {rows:,} rows", "import fewer files at a time")


def _taken(batch: pa.RecordBatch, rows: IntArray) -> pa.RecordBatch:
    return batch if len(rows) == len(batch) else batch.take(pa.array(rows))


class _Store:
    """Columns that are filled in any order: in memory, on disk, or as compressed images."""

    def __init__(self, draft: Path | None) -> None:
        self._draft = draft
        self._columns: dict[str, Array | CompressedFrames] = {}
        self._like: dict[str, Array] = {}

    def put(self, name: str, length: int, slots: IntArray, rows: Array, file: str) -> None:
        """Put rows of a file where they belong in a column of some length."""
        if name not in self._columns:
            self._columns[name], self._like[name] = self._room(name, length, rows), rows[:0]
        column, shape = self._columns[name], self._like[name].shape[1:]
        if rows.shape[1:] != shape:
            raise HyqError(f"{file} has rows of shape {rows.shape[1:]} where others have {shape}")
        if isinstance(column, CompressedFrames):
            column.put(slots, rows)
        else:
            column[slots] = rows
            release(column)

    def column(self, name: str) -> Column:
        """Return a whole column, once it is filled."""
        column = self._columns[name]
        if isinstance(column, CompressedFrames):
            exported = column.export(np.arange(len(column._blobs)))
            return PackedFrames(exported["blob"], exported["size"], self._like[name].shape[1:])
        return column

    def _room(self, name: str, length: int, rows: Array) -> Array | CompressedFrames:
        shape = (length, *rows.shape[1:])
        if is_image(shape[1:], rows.dtype):
            return CompressedFrames(length, shape[1:], rows.dtype)
        if self._draft is not None:
            return np.lib.format.open_memmap(self._draft / f"{name}.npy", "w+", rows.dtype, shape)
        size = length * rows[:1].nbytes
        check_room(size, f"column {name!r}", "import the files with 'hyq data import' first")
        return np.zeros(shape, rows.dtype)


@contextmanager
def located(table: Table, before: int, rows: IntArray | None = None) -> Iterator[None]:
    """Say in which row of the file a mistake is."""
    try:
        yield
    except BadRowError as error:
        row = error.row if rows is None else int(rows[error.row])
        raise HyqError(f"{table.name} row {before + row + 1:,}: {error}") from None


def _one_schema(tables: Sequence[Table]) -> pa.Schema:
    """Return the columns that all tables have, with types that hold those of all."""
    fields: dict[str, list[tuple[str, pa.Field]]] = {}
    for table in tables:
        for one in table.schema:
            fields.setdefault(one.name, []).append((table.name, one))
    schema = []
    for name, found in fields.items():
        kinds = [pa.schema([one.with_type(plain_type(one.type))]) for _, one in found]
        if len(found) < len(tables):
            having = {table for table, _ in found}
            without = next(table.name for table in tables if table.name not in having)
            schema.append(unusable(name, f"is in {found[0][0]} and not in {without}"))
            continue
        try:
            schema.append(pa.unify_schemas(kinds, promote_options="permissive").field(name))
        except pa.ArrowException:
            file, other = next((t, f) for t, f in found if f.type != found[0][1].type)
            both = f"holds {found[0][1].type} in {found[0][0]} and {other.type} in {file}"
            schema.append(unusable(name, both))
    return pa.schema(schema)


def _hashable(name: str, column: pa.Array) -> pa.Array:
    """Return ids of episodes in a form that can be compared."""
    column = plain(column)
    if pa.types.is_nested(column.type) or pa.types.is_duration(column.type):
        raise HyqError(f"column {name!r} holds {column.type}, which is no id of an episode")
    return column
