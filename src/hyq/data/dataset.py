"""Offline data: immutable, hashed, memory-mapped, and addressed by step.

On disk a dataset is a directory of `.npy` arrays and a `manifest.json` that says where the data
came from and what each file's SHA-256 is. Nothing in it is ever unpickled.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import file_digest, new_directory, read_json, write_json
from hyq.core.types import Array, BoolArray, IntArray, Transitions

FORMAT = "hyq-dataset-1"
_LOADERS = {
    FORMAT: "hyq.Dataset.load, or either kind with hyq.load_logs",
    "hyq-episodes-1": "hyq.Episodes.load, or either kind with hyq.load_logs",
}
"""What reads each kind of logs."""
COLUMNS = (*(f.name for f in fields(Transitions)), "step")


@dataclass(frozen=True, eq=False)  # arrays have no one answer; compare `digest()`
class Dataset:
    """Logged transitions, sorted by the step of their episode at which they happened."""

    transitions: Transitions
    step: IntArray
    provenance: Mapping[str, Any]
    """Which environment and which behaviour made the data; JSON only."""

    def __post_init__(self) -> None:
        """Refuse data that no algorithm could use, then make it read-only."""
        columns = {name: self.column(name) for name in COLUMNS}
        check_rows(columns, vectors=("reward", "discount", "step"))
        if len(self.step) == 0:
            raise HyqError("the dataset is empty")
        if not np.issubdtype(self.step.dtype, np.integer):
            raise HyqError(f"column 'step' must hold whole numbers, got {self.step.dtype}")
        for name, column in columns.items():
            check_numbers(name, column)
        if self.step[0] < 0 or np.any(self.step[1:] < self.step[:-1]):
            raise HyqError("rows must be sorted by 'step', which counts from 0")
        if np.any((self.transitions.discount < 0) | (self.transitions.discount > 1)):
            raise HyqError("column 'discount' must lie in [0, 1]: 0 where an episode terminated")
        for column in columns.values():
            column.flags.writeable = False

    @classmethod
    def from_arrays(
        cls,
        observation: Array,
        action: Array,
        reward: Array,
        next_observation: Array,
        terminated: Array,
        step: Array | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> "Dataset":
        """Make a dataset of (s, a, r, s') logs, in any order.

        Args:
            observation: s of each row.
            action: a of each row.
            reward: r of each row.
            next_observation: s' of each row.
            terminated: Whether the episode ended there by itself; not where it was cut off.
            step: Step of its episode at which each row happened, for methods that go by it.
            provenance: Where the data came from.
        """
        rows = Transitions(
            np.asarray(observation),
            np.asarray(action),
            np.asarray(reward, dtype=np.float32),
            1.0 - truth_values("terminated", terminated).astype(np.float32),
            np.asarray(next_observation),
        )
        when = np.zeros(len(rows.observation), np.int64) if step is None else np.asarray(step)
        # Before they are sorted: rows that do not fit cannot be, and a message may name a row.
        columns = {**vars(rows), "step": when}
        check_rows(columns, vectors=("reward", "step"))
        for name, column in columns.items():
            check_numbers(name, column)
        _check_actions(rows.action)
        order = np.argsort(when, kind="stable")
        return cls(rows[order], when[order], provenance or {})

    def __len__(self) -> int:
        """Count the transitions."""
        return len(self.step)

    def __repr__(self) -> str:
        """Say how much of what there is: the arrays would fill the screen."""
        seen = self.transitions.observation
        return (
            f"Dataset({len(self):,} transitions, {self.horizon:,} steps, "
            f"observations {seen.shape[1:]} {seen.dtype})"
        )

    @property
    def horizon(self) -> int:
        """Number of steps, the largest step index plus one."""
        return int(self.step[-1]) + 1

    def at(self, h: int) -> Transitions:
        """Return D^nu_h: the transitions that happened at step `h`, as a view."""
        return self.transitions[slice(*np.searchsorted(self.step, (h, h + 1)))]

    def column(self, name: str) -> Array:
        """Return one column by name."""
        array: Array = self.step if name == "step" else getattr(self.transitions, name)
        return array

    def digest(self) -> str:
        """Return a SHA-256 over every column, to tell whether two datasets are the same."""
        return columns_digest({name: self.column(name) for name in COLUMNS})

    def save(self, path: Path | str) -> None:
        """Write the dataset into a new directory, whole or not at all."""
        manifest = {
            "format": FORMAT,
            "transitions": len(self),
            "provenance": dict(self.provenance),
        }
        save_columns(Path(path), {name: self.column(name) for name in COLUMNS}, manifest)

    @classmethod
    def load(cls, path: Path | str) -> "Dataset":
        """Open a dataset memory-mapped, after checking every file against its hash."""
        manifest = read_manifest(Path(path))
        columns = load_columns(Path(path), COLUMNS, manifest)
        step = columns.pop("step")
        return cls(Transitions(**columns), step, manifest["provenance"])


class Rows(Protocol):
    """Anything that is an array as far as reading it block by block goes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that all rows together have."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an entry."""

    def __len__(self) -> int:
        """Count the rows."""

    def __getitem__(self, rows: slice, /) -> Array:
        """Return some rows."""


def blocks(column: Rows, rows: int = 65536) -> Iterator[Array]:
    """Go through a column in blocks, so that what lies on disk is never read in at once."""
    for start in range(0, len(column), rows):
        yield column[start : start + rows]


def check_rows(columns: Mapping[str, Array], vectors: Iterable[str]) -> None:
    """Refuse columns that cannot belong to the same transitions.

    Args:
        columns: By name; `observation` and `next_observation` must be among them.
        vectors: Names of those with one number a row.
    """
    for name in vectors:
        check_vector(name, columns[name])
    observation, following = columns["observation"], columns["next_observation"]
    for name, column in columns.items():
        if len(column) != len(observation):
            raise HyqError(
                f"column {name!r} has {len(column)} rows where 'observation' has {len(observation)}"
            )
    if following.shape != observation.shape:
        raise HyqError(
            f"column 'next_observation' has rows of shape {following.shape[1:]} where those of "
            f"'observation' have {observation.shape[1:]}"
        )


def check_vector(name: str, column: Array) -> None:
    """Refuse a column that has not one number a row."""
    if column.ndim != 1:
        remedy = ": give it .ravel()" if column.size == len(column) else ""
        raise HyqError(f"column {name!r} must be a vector, got shape {column.shape}{remedy}")


def _check_actions(action: Array) -> None:
    """Refuse what are no actions of any space; single numbers are often read as tables of them."""
    if action.dtype == np.bool_:
        raise HyqError("column 'action' holds truth values: number the actions with .astype(int)")
    if np.issubdtype(action.dtype, np.integer):  # else each row may be a point of a box
        check_vector("action", action)


def truth_values(name: str, flags: Array) -> BoolArray:
    """Return flags as truth values; numbers must be 0 or 1."""
    column = np.asarray(flags)
    check_vector(name, column)
    if not ((column == 0) | (column == 1)).all():
        raise HyqError(f"column {name!r} must hold truth values, or 0 and 1")
    return column.astype(np.bool_)


def check_numbers(name: str, column: Rows) -> None:
    """Refuse a column that holds anything but finite numbers."""
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


def columns_digest(columns: Mapping[str, Rows]) -> str:
    """Return a SHA-256 over the names and contents of columns."""
    total = hashlib.sha256()
    for name, column in columns.items():
        total.update(f"{name} {column.dtype.str} {column.shape}".encode())
        for block in blocks(column, rows=1024):
            total.update(np.ascontiguousarray(block).data.cast("B"))
    return total.hexdigest()


def save_columns(path: Path, columns: Mapping[str, Array], manifest: Mapping[str, Any]) -> None:
    """Write columns and a manifest with their hashes into a new directory."""
    with new_directory(path) as draft:
        for name, column in columns.items():
            np.save(draft / f"{name}.npy", np.ascontiguousarray(column), allow_pickle=False)
        hashes = {name: file_digest(draft / f"{name}.npy") for name in columns}
        write_json(draft / "manifest.json", {**manifest, "sha256": hashes})


def load_columns(path: Path, names: Iterable[str], manifest: Mapping[str, Any]) -> dict[str, Array]:
    """Open columns memory-mapped, after checking each file against its hash."""
    hashes = manifest["sha256"]
    return {name: _load_column(path / f"{name}.npy", hashes.get(name)) for name in names}


def any_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest in a directory, of whatever it may be."""
    if not path.is_dir():
        raise HyqError(f"{path} is not a dataset directory: give the directory that was saved")
    if not (path / "manifest.json").exists():
        raise HyqError(
            f"{path} holds no saved logs: make them with hyq.Dataset.from_arrays(...).save(DIR), "
            "see docs/quickstart.md"
        )
    return read_json(path / "manifest.json")


def read_manifest(path: Path, kind: str = FORMAT) -> dict[str, Any]:
    """Return the manifest of a dataset's directory, or say why it is none."""
    manifest = any_manifest(path)
    found = manifest.get("format")
    if found != kind:
        hint = "give the directory of saved logs"
        if found in _LOADERS:
            hint = f"open it with {_LOADERS[found]}"
        raise HyqError(f"{path} is not a {kind} dataset but {found or 'something else'}: {hint}")
    for name in ("sha256", "provenance"):
        if not isinstance(manifest.get(name), dict):
            raise HyqError(f"the manifest of {path} is damaged: it has no {name!r}")
    return manifest


def same_provenance(dataset: Dataset, expected: Mapping[str, Any]) -> None:
    """Refuse a dataset that says it came from another environment than `expected`."""
    found = _leaves(dataset.provenance)
    for key, value in _leaves(expected).items():
        if found.get(key) != value:
            raise HyqError(
                f"the dataset is of another environment: its {key} is {found.get(key)!r}, "
                f"this one's is {value!r}"
            )


def check_fits(dataset: Dataset, env: gym.vector.VectorEnv[Any, Any, Any], horizon: int) -> None:
    """Refuse data whose shapes, actions or length cannot have come from `env`."""
    rows, space = dataset.transitions, env.single_observation_space
    if rows.observation.shape[1:] != space.shape or rows.next_observation.shape[1:] != space.shape:
        raise HyqError(
            f"the dataset's observations have shape {rows.observation.shape[1:]}, "
            f"the environment's {space.shape}"
        )
    if dataset.horizon != horizon:
        raise HyqError(f"the dataset has {dataset.horizon} steps, the environment {horizon}")
    actions = env.single_action_space
    if isinstance(actions, gym.spaces.Discrete):
        low, high = rows.action.min(), rows.action.max()
        if low < actions.start or high >= actions.start + actions.n:
            raise HyqError(f"the dataset has actions from {low} to {high}, outside {actions}")


def _leaves(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings into one, keyed by the innermost names."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _leaves(value) if isinstance(value, Mapping) else {key: value}
    return flat


def _load_column(path: Path, digest: str | None) -> Array:
    try:
        found = file_digest(path)
        if found != digest:
            raise HyqError(f"{path} was altered or cut short: its hash does not match the manifest")
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise HyqError(f"{path} is missing: the dataset is incomplete") from None
    except ValueError:
        raise HyqError(f"{path} is not a plain NumPy array") from None
