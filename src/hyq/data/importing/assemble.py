"""From tables to a dataset: two passes, one over what decides the order and one over the rest."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa

from hyq.core.errors import HyqError
from hyq.core.files import new_directory
from hyq.core.memory import check_room, return_freed_memory
from hyq.core.types import Array, BoolArray, IntArray
from hyq.data.dataset import Dataset, observation_files
from hyq.data.importing.columns import Columns, find_columns
from hyq.data.importing.formats import open_tables
from hyq.data.importing.order import Arrangement, Finding, Log, Plan, Rules, described, doubt
from hyq.data.importing.store import Store
from hyq.data.importing.table import Table, unusable
from hyq.data.importing.values import (
    BadRowError,
    codes,
    fingerprints,
    is_text,
    missing,
    numbers,
    plain,
    plain_type,
    stacked,
    times,
    truths,
)

NO_VALUE = "has no finite value; correct it, or leave such rows out with missing='drop'"
BYTES_A_ROW = 40
"""Memory that it takes to sort."""
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
    _check_rules(rules)
    imported = _Import(open_tables(source), vars(columns), rules, episodes_per_file)
    if out is None:
        return imported.run(None)
    with new_directory(out) as draft:
        made = imported.run(draft)
        made.dataset.write(draft)
    return made  # what it has mapped stays there when the directory gets its name


def _check_rules(rules: Rules) -> None:
    for name, kind in get_type_hints(Rules).items():
        choices = [c for part in get_args(kind) for c in (get_args(part) or (part,))]
        choices = [None if choice is type(None) else choice for choice in choices]
        if getattr(rules, name) not in choices:
            named = " or ".join(repr(choice) for choice in choices)
            raise HyqError(f"{name} is {named}, not {getattr(rules, name)!r}")


class _Import:
    def __init__(
        self, tables: Sequence[Table], given: Mapping[str, Any], rules: Rules, per_file: bool
    ) -> None:
        self._tables, self._rules, self._per_file = tables, rules, per_file
        schema = _one_schema(tables)
        self.columns = find_columns(schema, given)
        self._types = {name: schema.field(name).type for name in schema.names}
        if per_file and self.columns.episode is None:
            raise HyqError("episodes_per_file needs a column for the episode: there is none")
        self._text = all(table.text for table in tables)
        self._vocabulary: dict[str, list[str]] = {}

    def run(self, draft: Path | None) -> Imported:
        columns, plan = self.columns, self._plan()
        self._check_continuity(plan)
        observation, action, reward = self._filled(plan, draft)
        episodes = len(plan.length)
        provenance = {
            **next((dict(table.about) for table in self._tables if table.about), {}),
            "imported": {
                "files": [Path(table.name).name for table in self._tables][:1000],
                "columns": columns.encoded(),
                "rules": {k: v for k, v in asdict(self._rules).items() if v is not None},
                "mended": described(plan.findings),
                **({"actions": self._vocabulary[""]} if self._vocabulary else {}),
            },
        }
        dataset = Dataset(
            observation,
            action,
            reward,
            np.zeros(len(action), np.bool_),
            plan.length,
            plan.terminated,
            plan.timestep if len(plan.timestep) else np.zeros(episodes, np.int64),
            provenance,
        )
        return Imported(dataset, columns, plan.findings)

    def _plan(self) -> Plan:
        """Find out where each row belongs."""
        log, columns = self._log(), self.columns
        arrangement = Arrangement(
            log, self._rules, bool(columns.next_observation), columns.done_is_over
        )
        return arrangement.plan(lambda one, other: self._same(log, one, other))

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
        names += self._names_of_text(names)
        if columns.next_observation or rules.missing == "drop":
            names = list(dict.fromkeys(names + columns.data()))
        found: dict[str, list[Array]] = {
            name: [] for name in ("terminated", "truncated", "dropped")
        }
        found |= {"episode": [], "time": [], "here": [], "there": []}
        ids: dict[Any, int] = {}
        words: set[str] = set()
        ends = dict.fromkeys((table.name for table in self._tables), 0)
        _check_room(sum(table.rows for table in self._tables))
        for row, before, table, whole in self._rows(names):
            batch, ends[table.name] = whole, row + len(whole)
            if row % 2**20 < len(batch):
                _check_room(row)
            gone = np.logical_or.reduce([missing(column) for column in batch.columns])
            if gone.any():
                if rules.missing == "raise":
                    self._raise_missing(table, batch, gone, before)
                # A row that is left out may hold anything: another stands in for it.
                rows = np.where(gone, int(gone.argmin()), np.arange(len(batch)))
                batch = batch.take(pa.array(rows))
            found["dropped"].append(gone)
            if gone.all():
                for name in found.keys() - {"dropped"}:
                    found[name].append(np.zeros(len(gone), np.int32))
                continue
            with located(table, before):
                self._read_control(table, batch, found, ids, words)
        if not found["terminated"]:
            raise HyqError("there are no rows")
        joined = {name: np.concatenate(found.pop(name)) for name in list(found) if found[name]}
        return_freed_memory()
        if words:
            self._vocabulary[""] = sorted(words)
        return Log(
            joined["terminated"].astype(np.bool_, copy=False),
            joined["truncated"].astype(np.bool_, copy=False),
            None if columns.episode is None else _ranked(ids)[joined["episode"]],
            None if columns.time is None else joined["time"],
            (joined["here"], joined["there"]) if columns.next_observation else None,
            joined["dropped"] if rules.missing == "drop" else None,
            list(ends),
            np.maximum.accumulate(list(ends.values())),
        )

    def _names_of_text(self, names: Sequence[str]) -> list[str]:
        action = self.columns.action
        text = [name for name in action if is_text(self._types[name])]
        if text and len(action) > 1:
            raise HyqError(
                f"column {text[0]!r} holds text: only a single action can be named by it"
            )
        return [name for name in text if name not in names]

    def _read_control(
        self,
        table: Table,
        batch: pa.RecordBatch,
        found: dict[str, list[Array]],
        ids: dict[Any, int],
        words: set[str],
    ) -> None:
        columns = self.columns
        for what, name in (("terminated", columns.terminated), ("truncated", columns.truncated)):
            none = np.zeros(len(batch), np.bool_)
            found[what].append(none if name is None else truths(name, batch[name]))
        if columns.time is not None:
            time = times(columns.time, batch[columns.time])
            small = time.dtype.kind == "i" and -(2**30) < time.min() <= time.max() < 2**30
            found["time"].append(time.astype(np.int32) if small else time)
        if columns.episode is not None:
            coded = _hashable(columns.episode, batch[columns.episode]).dictionary_encode()
            scope = table.name if self._per_file else ""
            keys = [(scope, key) for key in coded.dictionary.to_pylist()]
            numbered = np.array([ids.setdefault(key, len(ids)) for key in keys], np.int32)
            found["episode"].append(numbered[coded.indices.to_numpy()])
        for name in self._names_of_text(()):
            words.update(plain(batch[name]).unique().cast(pa.string()).to_pylist())
        if columns.next_observation:
            for what, parts in (
                ("here", columns.observation),
                ("there", columns.next_observation),
            ):
                in_order = [name for key in sorted(parts) for name in parts[key]]
                found[what].append(fingerprints(in_order, batch).astype(np.uint32))

    def _raise_missing(
        self, table: Table, batch: pa.RecordBatch, gone: BoolArray, before: int
    ) -> None:
        row = int(gone.argmax())
        name = next(n for n in batch.schema.names if missing(batch[n])[row])
        raise HyqError(f"{table.name} row {before + row + 1:,}: column {name!r} {NO_VALUE}")

    def _same(self, log: Log, one: IntArray, other: IntArray) -> BoolArray:
        """Tell which of two rows have equal contents."""
        names = self.columns.data() + self.columns.control()
        prints = np.zeros(len(log.terminated), np.uint64)
        for row, _, _, batch in self._rows(names):
            prints[row : row + len(batch)] = fingerprints(names, batch)
        return prints[one] == prints[other]

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
            flat = np.concatenate(
                [values[name].reshape(len(batch), -1).astype(np.float32) for name in names], axis=1
            )
            parts.append(flat)
            rows += len(batch)
            if rows * flat.shape[1] * 4 > TESTED_BYTES:
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
        columns = self.columns
        observations = int((plan.length + 1).sum())
        last = np.cumsum(plan.length + 1) - 1
        keys = sorted(columns.observation)
        keyed = keys != [""]
        stores: dict[str, Store] = {}
        for row, before, table, whole in self._rows(columns.data()):
            slot = plan.slot[row : row + len(whole)].astype(np.int64)
            if len(slot) < len(whole):
                raise HyqError(f"{table.name} changed while it was read")
            rows = np.flatnonzero(slot >= 0)
            if not len(rows):
                continue
            slot, batch = slot[rows], whole
            if len(rows) < len(whole):
                batch = whole.take(pa.array(rows))
            with located(table, before, rows):
                values = self._values(batch)
            episode = np.searchsorted(last, slot)
            acts = slot < last[episode]  # the last observation of an episode is not acted in
            ends = (slot == last[episode] - 1) & (
                plan.terminated[episode] | bool(columns.next_observation)
            )
            for place, key in enumerate(keys):
                names = columns.observation[key]
                seen = stacked(names, values, self._kind(names))
                if key not in stores:
                    file = observation_files(keys if keyed else None)[place]
                    stores[key] = Store.of(draft, file, observations, seen)
                store = stores[key]
                store.put(slot, seen, table.name)
                if ends.any():
                    after = columns.next_observation.get(key, names)
                    end = stacked(after, {n: v[ends] for n, v in values.items()}, self._kind(names))
                    store.put(slot[ends] + 1, end, table.name)
            index = (slot - episode)[acts]
            for name, part in (
                ("action", self._action(values)),
                ("reward", self._reward(values)),
            ):
                if f".{name}" not in stores:
                    stores[f".{name}"] = Store.of(draft, name, observations - len(last), part)
                stores[f".{name}"].put(index, part[acts], table.name)
        laid = {key: stores[key].column() for key in keys}
        return (
            laid if keyed else laid[""],
            stores[".action"].column(),
            stores[".reward"].column(),
        )

    def _values(self, batch: pa.RecordBatch) -> dict[str, Array]:
        values: dict[str, Array] = {}
        for name in batch.schema.names:
            if self._vocabulary and name in self.columns.action:
                values[name] = codes(name, batch[name], self._vocabulary[""])
                continue
            gone = missing(batch[name])
            if gone.any():
                raise BadRowError(int(gone.argmax()), f"column {name!r} {NO_VALUE}")
            values[name] = numbers(name, batch[name])
        return values

    def _kind(self, names: Sequence[str]) -> Any:
        """Return the type that numbers are kept in; None as they are."""
        if self._text and any(self._floats(name) for name in names):
            return np.float32
        return None

    def _floats(self, name: str) -> bool:
        kind = self._types[name]
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        return pa.types.is_floating(kind) or pa.types.is_decimal(kind)

    def _action(self, values: Mapping[str, Array]) -> Array:
        names = self.columns.action
        action = stacked(names, values, self._kind(names))
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


def _ranked(ids: Mapping[tuple[str, Any], int]) -> IntArray:
    """Return the place of each id among all, by the number it was first given."""
    ordered = sorted(ids, key=lambda key: (key[0], key[1]))
    rank = np.empty(len(ids), np.int32)
    rank[[ids[key] for key in ordered]] = np.arange(len(ids), dtype=np.int32)
    return rank
