"""Offline data: episodes laid end to end, each observation once; immutable and hashed.

Transitions without order are episodes of one transition. On disk a dataset is a directory of
`.npy` arrays and a `manifest.json` that says where the data came from and what each file's SHA-256
is. Nothing in it is ever unpickled. Images are stored compressed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.files import new_directory, raising_damage
from hyq.core.types import Array, BoolArray, FloatArray, IntArray, Transitions
from hyq.data.columns import (
    Column,
    Observation,
    check_actions,
    check_numbers,
    check_vector,
    columns_digest,
    described,
    joined,
    load_columns,
    named,
    only_column,
    over_columns,
    packed,
    read_manifest,
    truth_values,
    write_columns,
)
from hyq.data.layout import check_given, check_order, cut, lay_out, sort
from hyq.data.steps import StepView

COLUMNS = ("action", "reward", "life_lost", "length", "terminated", "timestep")
"""All columns but those of the observation."""


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T transitions in time order."""

    observation: Array | Mapping[str, Array]
    """Shape (T + 1, ...), or a dictionary of such: the last one was seen but not acted in."""
    action: Array
    reward: FloatArray
    terminated: bool
    """Whether the episode ended by itself; otherwise it was truncated, and its value continues."""
    life_lost: BoolArray | None = None
    """Where a life was lost, in games that continue with the next one."""
    timestep: int = 0
    """The timestep of the first transition, where it is not the episode's first."""

    def __post_init__(self) -> None:
        """Raise unless the columns belong to one another."""
        steps = len(self.action)
        lost = steps if self.life_lost is None else len(self.life_lost)
        seen = {len(column) for column in named("observation", self.observation).values()}
        if steps == 0 or (seen, len(self.reward), lost) != ({steps + 1}, steps, steps):
            raise HyqError(
                f"an episode has at least one action, as many rewards and one more observation, "
                f"got {steps}, {len(self.reward)} and {', '.join(map(str, sorted(seen)))}"
            )

    def __repr__(self) -> str:
        """Say how much of what there is: the arrays would fill the screen."""
        end = "terminated" if self.terminated else "truncated"
        seen = described(self.observation)
        return f"Episode({len(self.action):,} transitions, {end}, observations {seen})"


@dataclass(frozen=True, eq=False)  # comparing arrays gives arrays; compare `digest()`
class Dataset:
    """Offline data: N transitions of E episodes, laid end to end."""

    observation: Observation
    """The T + 1 observations of each episode: an array, compressed images, or a dictionary."""
    action: Array
    """Shape (N, ...): integers or floats of any shape."""
    reward: FloatArray
    life_lost: BoolArray
    length: IntArray
    """T of each episode."""
    terminated: BoolArray
    """Whether each episode ended by itself."""
    timestep: IntArray
    """The timestep of each episode's first transition; 0 unless known."""
    provenance: Mapping[str, Any]
    """Which environment and which behaviour made the data; JSON only."""

    def __post_init__(self) -> None:
        """Raise for data that no algorithm could use, then make it read-only."""
        if isinstance(self.observation, Mapping):  # in one order, so that the digest is one
            object.__setattr__(self, "observation", dict(sorted(self.observation.items())))
        check_vector("length", self.length)
        if len(self.length) == 0 or self.length.min() < 1:
            raise HyqError("the dataset is empty: there must be an episode, each with a transition")
        self._check_rows()
        check_actions(self.action)
        for name, column in self._columns().items():
            check_numbers(name, column)
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
        for name in ("life_lost", "terminated"):
            if getattr(self, name).dtype != np.bool_:
                raise HyqError(f"column {name!r} must hold truth values")
        if not np.issubdtype(self.timestep.dtype, np.integer) or self.timestep.min() < 0:
            raise HyqError("column 'timestep' must hold whole numbers that count from 0")

    @classmethod
    def of(cls, episodes: Iterable[Episode], provenance: Mapping[str, Any]) -> "Dataset":
        """Lay episodes end to end, compressing images one episode at a time."""
        parts = [(over_columns(packed, e.observation), _other_columns(e)) for e in episodes]
        if not parts:
            raise HyqError("there are no episodes")
        observations, others = zip(*parts, strict=True)
        if len({described(observation) for observation in observations}) != 1:
            raise HyqError("the observations of all episodes must have one shape and type")
        columns: dict[str, Any] = {
            name: joined(*(part[name] for part in others)) for name in COLUMNS
        }
        return cls(over_columns(joined, *observations), **columns, provenance=provenance)

    @classmethod
    def from_arrays(
        cls,
        observation: Array | Mapping[str, Array],
        action: Array,
        reward: Array,
        next_observation: Array | Mapping[str, Array] | None,
        terminated: Array,
        truncated: Array | None = None,
        timestep: Array | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> "Dataset":
        """Make a dataset of arrays with one row a transition.

        Args:
            observation: s of each row; for a dictionary observation space an array for each key.
            action: a of each row.
            reward: r of each row.
            next_observation: s' of each row. Rows in time order may do without it: the next row's
                observation is it. What came after a truncation is then unknown, so the last row
                before it only serves as an observation; after a termination nothing counts, and the
                last observation stands there again.
            terminated: Whether the episode ended by itself after the row.
            truncated: Whether the episode was cut off after the row. With it, rows are in time
                order and become whole episodes; the end of the data counts as a truncation. Without
                it, rows may have any order.
            timestep: Step of its episode at which each row happened, for rows in any order.
            provenance: Where the data came from.
        """
        seen = over_columns(np.asarray, observation)
        after = seen if next_observation is None else over_columns(np.asarray, next_observation)
        ended = truth_values("terminated", terminated)
        columns: dict[str, Any] = {
            **named("observation", seen),
            "action": np.asarray(action),
            "reward": np.asarray(reward, dtype=np.float32),
            **(named("next_observation", after) if next_observation is not None else {}),
            "terminated": ended,
        }
        if truncated is not None:
            if timestep is not None:
                raise HyqError("timestep is for rows in any order: leave it out, or truncated")
            columns["truncated"] = truth_values("truncated", truncated)
        elif next_observation is None:
            raise HyqError("rows in any order need next_observation: give it, or truncated")
        else:
            known = np.zeros(len(columns["action"]), np.int64) if timestep is None else timestep
            columns["timestep"] = np.asarray(known)
        # Before anything is sorted or cut: a message may name a row.
        check_given(columns, seen, after)
        if truncated is None:
            rows = sort(columns["timestep"])
        else:
            rows = cut(ended, columns["truncated"], next_observation is None)
            if next_observation is not None:
                check_order(seen, after, ended | columns["truncated"])
        return cls(
            over_columns(lambda one, end: lay_out(one, end, rows), seen, after),
            columns["action"][rows.kept],
            columns["reward"][rows.kept],
            np.zeros(len(rows.kept), np.bool_),
            rows.length,
            ended[rows.last],
            rows.timestep,
            provenance or {},
        )

    @classmethod
    def from_transitions(
        cls, rows: Transitions, timestep: IntArray, provenance: Mapping[str, Any] | None = None
    ) -> "Dataset":
        """Make a dataset of transitions in any order, each an episode of its own."""
        arrays = (rows.observation, rows.action, rows.reward, rows.next_observation)
        if not np.isin(rows.discount, (0, 1)).all():
            raise HyqError(
                "discounts of offline data are 0 where an episode terminated, 1 elsewhere"
            )
        return cls.from_arrays(
            *arrays, rows.discount == 0, timestep=timestep, provenance=provenance
        )

    def __len__(self) -> int:
        """Count the transitions."""
        return len(self.action)

    @property
    def num_episodes(self) -> int:
        """How many episodes there are."""
        return len(self.length)

    @property
    def num_observations(self) -> int:
        """How many observations there are: one more than transitions in every episode."""
        return len(self) + self.num_episodes

    @property
    def ordered(self) -> bool:
        """Whether there are episodes of several transitions; else rows have no order in time."""
        return len(self) > self.num_episodes

    def __repr__(self) -> str:
        """Say how much of what there is: the arrays would fill the screen."""
        return (
            f"Dataset({len(self):,} transitions, {self.num_episodes:,} episodes, "
            f"observations {described(self.observation)}, "
            f"actions {described(self.action)})"
        )

    def __iter__(self) -> Iterator[Episode]:
        """Go through the episodes, decompressing one at a time."""
        ends = np.cumsum(self.length)
        for index, (start, end) in enumerate(zip(ends - self.length, ends, strict=True)):
            seen = slice(start + index, end + index + 1)
            yield Episode(
                over_columns(lambda column, rows=seen: column[rows], self.observation),
                self.action[start:end],
                self.reward[start:end],
                bool(self.terminated[index]),
                self.life_lost[start:end],
                int(self.timestep[index]),
            )

    def episodes(self, numbers: IntArray) -> "Dataset":
        """Return some of the episodes, by their number."""
        wanted = set(numbers.tolist())
        return Dataset.of((e for n, e in enumerate(self) if n in wanted), self.provenance)

    def returns(self) -> FloatArray:
        """Return the undiscounted return of each episode."""
        first = np.cumsum(self.length) - self.length
        return np.add.reduceat(self.reward.astype(np.float64), first)

    def by_step(self) -> StepView:
        """Return the transitions sorted by timestep, for methods that learn step by step."""
        episodes = (self.length, self.terminated, self.timestep)
        return StepView(only_column(self.observation), self.action, self.reward, *episodes)

    def digest(self) -> str:
        """Return a SHA-256 over the decompressed contents, to tell whether two are the same."""
        return columns_digest(self._columns())

    def save(self, path: Path | str) -> None:
        """Write the dataset into a new directory, whole or not at all."""
        with new_directory(Path(path)) as draft:
            self.write(draft)

    def write(self, directory: Path) -> None:
        """Write the dataset into a directory that is being made."""
        keys = list(self.observation) if isinstance(self.observation, Mapping) else None
        manifest = {
            "episodes": self.num_episodes,
            "transitions": len(self),
            "observation_keys": keys,
            "provenance": dict(self.provenance),
        }
        # Files are numbered, because a key may be no name of a file.
        observation = dict(
            zip(observation_files(keys), named("", self.observation).values(), strict=True)
        )
        others = {name: getattr(self, name) for name in COLUMNS}
        write_columns(directory, observation | others, manifest)

    @classmethod
    def load(cls, path: Path | str) -> "Dataset":
        """Open a dataset memory-mapped, after checking every file against its hash."""
        directory = Path(path)
        manifest = read_manifest(directory)
        with raising_damage(directory / "manifest.json"):
            keys = manifest.get("observation_keys")
            seen = list(load_columns(directory, observation_files(keys), manifest).values())
            parts: Observation = seen[0] if keys is None else dict(zip(keys, seen, strict=True))
            columns: dict[str, Any] = load_columns(directory, COLUMNS, manifest)
            return cls(parts, **columns, provenance=manifest["provenance"])

    def _columns(self) -> dict[str, Column]:
        others = {name: getattr(self, name) for name in COLUMNS}
        return named("observation", self.observation) | others

    def _check_rows(self) -> None:
        episodes, transitions = len(self.length), int(self.length.sum())
        per_episode = dict.fromkeys(("length", "terminated", "timestep"), episodes)
        per_transition = dict.fromkeys(("action", "reward", "life_lost"), transitions)
        for name, column in self._columns().items():
            rows = (per_episode | per_transition).get(name, episodes + transitions)
            if len(column) != rows:
                raise HyqError(
                    f"column {name!r} has {len(column)} rows where the lengths say {rows}"
                )
        for name in COLUMNS[1:]:
            check_vector(name, getattr(self, name))


def _other_columns(episode: Episode) -> dict[str, Array]:
    """Return all columns of an episode but those of the observation."""
    lost = np.zeros(len(episode.action), np.bool_)
    return {
        "action": np.asarray(episode.action),
        "reward": np.asarray(episode.reward, np.float32),
        "life_lost": lost if episode.life_lost is None else np.asarray(episode.life_lost),
        "length": np.array([len(episode.action)]),
        "terminated": np.array([bool(episode.terminated)]),
        "timestep": np.array([episode.timestep]),
    }


def observation_files(keys: list[str] | None) -> list[str]:
    """Return the names under which the columns of an observation are saved."""
    return ["observation"] if keys is None else [f"observation-{i}" for i in range(len(keys))]
