"""Offline data: immutable, hashed, memory-mapped, and addressed by step.

On disk a dataset is a directory of `.npy` arrays and a `manifest.json` that says where the data
came from and what each file's SHA-256 is. Nothing in it is ever unpickled.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import file_digest, new_directory, read_json, write_json
from hyq.core.types import Array, IntArray, Transitions

FORMAT = "hyq-dataset-1"
COLUMNS = (*(f.name for f in fields(Transitions)), "step")


@dataclass(frozen=True)
class Dataset:
    """Logged transitions, sorted by the step of their episode at which they happened."""

    transitions: Transitions
    step: IntArray
    provenance: Mapping[str, Any]
    """Which environment and which behaviour made the data; JSON only."""

    def __post_init__(self) -> None:
        """Refuse data that no algorithm could use, then make it read-only."""
        columns = {name: self.column(name) for name in COLUMNS}
        if len(self.step) == 0:
            raise HyqError("the dataset is empty")
        for name, column in columns.items():
            if len(column) != len(self.step):
                raise HyqError(
                    f"column {name!r} has {len(column)} rows where 'step' has {len(self.step)}"
                )
            if column.dtype == object:
                raise HyqError(f"column {name!r} holds Python objects: store plain numbers")
            if np.issubdtype(column.dtype, np.floating) and not _all_finite(column):
                raise HyqError(f"column {name!r} has NaN or infinite entries: clean the data first")
        if self.step[0] < 0 or np.any(np.diff(self.step) < 0):
            raise HyqError("rows must be sorted by 'step', which counts from 0")
        if np.any((self.transitions.discount < 0) | (self.transitions.discount > 1)):
            raise HyqError("column 'discount' must lie in [0, 1]: 0 where an episode terminated")
        for column in columns.values():
            column.flags.writeable = False

    def __len__(self) -> int:
        """Count the transitions."""
        return len(self.step)

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
        total = hashlib.sha256()
        for name in COLUMNS:
            column = np.ascontiguousarray(self.column(name))
            total.update(f"{name} {column.dtype.str} {column.shape}".encode())
            total.update(column.data.cast("B"))
        return total.hexdigest()

    def save(self, path: Path) -> None:
        """Write the dataset into a new directory, whole or not at all."""
        with new_directory(path) as draft:
            for name in COLUMNS:
                np.save(draft / f"{name}.npy", self.column(name), allow_pickle=False)
            manifest = {
                "format": FORMAT,
                "transitions": len(self),
                "provenance": dict(self.provenance),
                "sha256": {name: file_digest(draft / f"{name}.npy") for name in COLUMNS},
            }
            write_json(draft / "manifest.json", manifest)

    @classmethod
    def load(cls, path: Path) -> "Dataset":
        """Open a dataset memory-mapped, after checking every file against its hash."""
        manifest = read_manifest(path)
        columns = {
            name: _load_column(path / f"{name}.npy", manifest["sha256"].get(name))
            for name in COLUMNS
        }
        step = columns.pop("step")
        return cls(Transitions(**columns), step, manifest["provenance"])


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a dataset's directory, or say why it is none."""
    if not path.is_dir():
        raise HyqError(f"{path} is not a dataset directory: give the directory that was saved")
    manifest = read_json(path / "manifest.json")
    if manifest.get("format") != FORMAT:
        raise HyqError(f"{path} is not a {FORMAT} dataset: its manifest says otherwise")
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


def _all_finite(column: Array, rows: int = 65536) -> bool:
    """Check in blocks, so that a memory-mapped column is never read into memory at once."""
    return all(
        bool(np.isfinite(column[start : start + rows]).all())
        for start in range(0, len(column), rows)
    )
