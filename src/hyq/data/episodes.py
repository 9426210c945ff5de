"""Logged episodes in time order, each observation once, for pixels and for vectors.

`data.dataset` keeps transitions by step, which suits regressions step by step; frame stacks and
n-step returns need episodes whole. On disk they look alike: a directory of hashed `.npy` arrays and
a `manifest.json`, nothing ever unpickled. Images are stored compressed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, BoolArray, FloatArray, IntArray
from hyq.data.dataset import (
    Rows,
    check_numbers,
    check_rows,
    check_vector,
    columns_digest,
    load_columns,
    read_manifest,
    save_columns,
    truth_values,
)
from hyq.data.frames import PackedFrames, is_image

FORMAT = "hyq-episodes-1"
COLUMNS = ("action", "reward", "life_lost", "length", "terminated")
_PACKED = ("blob", "size", "shape")


@dataclass(frozen=True, eq=False)
class Episode:
    """One logged episode of T transitions in time order."""

    observation: Array
    """Shape (T + 1, ...): the last one was seen but not acted in."""
    action: Array
    reward: FloatArray
    terminated: bool
    """Whether the episode ended by itself; otherwise it was cut off, and its value goes on."""
    life_lost: BoolArray | None = None
    """Where a life was lost, in games that go on with the next one."""

    def __post_init__(self) -> None:
        """Refuse columns that do not belong to one another."""
        steps = len(self.action)
        lost = steps if self.life_lost is None else len(self.life_lost)
        if steps == 0 or (len(self.observation), len(self.reward), lost) != (
            steps + 1,
            steps,
            steps,
        ):
            raise HyqError(
                f"an episode has at least one action, as many rewards and one more observation, "
                f"got {steps}, {len(self.reward)} and {len(self.observation)}"
            )

    def __repr__(self) -> str:
        """Say how much of what there is: the arrays would fill the screen."""
        end = "terminated" if self.terminated else "cut off"
        seen = self.observation
        return (
            f"Episode({len(self.action):,} transitions, {end}, "
            f"observations {seen.shape[1:]} {seen.dtype})"
        )


@dataclass(frozen=True, eq=False)  # arrays have no one answer; compare `digest()`
class Episodes:
    """Logged episodes laid end to end."""

    observation: Array | PackedFrames
    """The T + 1 observations of each episode; those of images may be compressed."""
    action: Array
    reward: FloatArray
    life_lost: BoolArray
    length: IntArray
    """T of each episode."""
    terminated: BoolArray
    """Whether each episode ended by itself."""
    provenance: Mapping[str, Any]
    """Which environment and which behaviour made the data; JSON only."""

    def __post_init__(self) -> None:
        """Refuse data that no algorithm could use, then make it read-only."""
        if len(self.length) == 0 or self.length.min() < 1:
            raise HyqError("there must be an episode, and each must have a transition")
        self._check_rows()
        for name, column in self._columns().items():
            check_numbers(name, column)
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
        if not np.issubdtype(self.action.dtype, np.integer):
            raise HyqError(
                f"actions must be integers, got {self.action.dtype}: whole numbers become so with "
                ".astype(int)"
            )
        for name in ("life_lost", "terminated"):
            if getattr(self, name).dtype != np.bool_:
                raise HyqError(f"column {name!r} must hold truth values")

    @classmethod
    def of(cls, episodes: Iterable[Episode], provenance: Mapping[str, Any]) -> "Episodes":
        """Lay episodes end to end, compressing images one episode at a time."""
        parts = [_packed(episode) for episode in episodes]
        if not parts:
            raise HyqError("there are no episodes")
        observations, kept = zip(*parts, strict=True)
        if len({(part.shape[1:], part.dtype) for part in observations}) != 1:
            raise HyqError("the observations of all episodes must have one shape and type")
        if isinstance(observations[0], PackedFrames):
            observation: Array | PackedFrames = PackedFrames.concatenate(observations)
        else:
            observation = np.concatenate(observations)
        columns = {name: np.concatenate([part[name] for part in kept]) for name in COLUMNS}
        return cls(observation, **columns, provenance=provenance)

    @classmethod
    def from_arrays(
        cls,
        observation: Array,
        action: Array,
        reward: Array,
        next_observation: Array | None,
        terminated: Array,
        truncated: Array,
        provenance: Mapping[str, Any] | None = None,
    ) -> "Episodes":
        """Cut logs in the order of time into episodes, where one terminated or was cut off.

        Each array has one row a transition, and inside an episode each row begins where the one
        before it ended; the end of the logs counts as a cut.

        Where the logs have no `next_observation`, give None: the next row's observation is it.
        Nobody knows what came after a cut, so the last row before it is only looked at, not learned
        from; after a termination nothing counts, and the last observation stands there again.
        """
        seen = np.asarray(observation)
        rows = {
            "observation": seen,
            "action": np.asarray(action),
            "reward": np.asarray(reward, dtype=np.float32),
            "next_observation": seen if next_observation is None else np.asarray(next_observation),
            "terminated": truth_values("terminated", terminated),
            "truncated": truth_values("truncated", truncated),
        }
        check_rows(rows, vectors=("action", "reward"))
        for name in ("observation", "action", "reward", "next_observation"):
            check_numbers(name, rows[name])
        cut = _cut if next_observation is not None else _cut_without_ends
        return cls.of(cut(rows), provenance or {})

    def __len__(self) -> int:
        """Count the transitions."""
        return len(self.action)

    def __repr__(self) -> str:
        """Say how much of what there is: the arrays would fill the screen."""
        seen = self.observation
        return (
            f"Episodes({len(self.length):,} episodes, {len(self):,} transitions, "
            f"observations {seen.shape[1:]} {seen.dtype})"
        )

    def __iter__(self) -> Iterator[Episode]:
        """Go through the episodes, decompressing one at a time."""
        ends = np.cumsum(self.length)
        for index, (start, end) in enumerate(zip(ends - self.length, ends, strict=True)):
            yield Episode(
                self.observation[start + index : end + index + 1],
                self.action[start:end],
                self.reward[start:end],
                bool(self.terminated[index]),
                self.life_lost[start:end],
            )

    def digest(self) -> str:
        """Return a SHA-256 over the decompressed contents."""
        return columns_digest(self._columns())

    def save(self, path: Path | str) -> None:
        """Write the episodes into a new directory, whole or not at all."""
        manifest = {
            "format": FORMAT,
            "episodes": len(self.length),
            "transitions": len(self),
            "packed": is_image(self.observation.shape[1:], self.observation.dtype),
            "provenance": dict(self.provenance),
        }
        columns: dict[str, Array] = {name: getattr(self, name) for name in COLUMNS}
        observation = self.observation
        if isinstance(observation, np.ndarray) and manifest["packed"]:
            observation = PackedFrames.pack(observation)
        if isinstance(observation, PackedFrames):
            shape = np.array(observation.shape[1:])
            columns |= {"blob": observation.blob, "size": observation.size, "shape": shape}
        else:
            columns["observation"] = observation
        save_columns(Path(path), columns, manifest)

    @classmethod
    def load(cls, path: Path | str) -> "Episodes":
        """Open saved episodes memory-mapped, after checking every file against its hash."""
        directory = Path(path)
        manifest = read_manifest(directory, FORMAT)
        columns = load_columns(directory, COLUMNS, manifest)
        if manifest.get("packed"):
            packed = load_columns(directory, _PACKED, manifest)
            shape = tuple(packed["shape"].tolist())
            observation: Array | PackedFrames = PackedFrames(packed["blob"], packed["size"], shape)
        else:
            observation = load_columns(directory, ["observation"], manifest)["observation"]
        return cls(observation, **columns, provenance=manifest["provenance"])

    def _columns(self) -> dict[str, Rows]:
        return {name: getattr(self, name) for name in ("observation", *COLUMNS)}

    def _check_rows(self) -> None:
        episodes, transitions = len(self.length), int(self.length.sum())
        expected = {
            "observation": transitions + episodes,
            "action": transitions,
            "reward": transitions,
            "life_lost": transitions,
            "terminated": episodes,
        }
        for name, rows in expected.items():
            column = getattr(self, name)
            if len(column) != rows:
                raise HyqError(
                    f"column {name!r} has {len(column)} rows where the lengths say {rows}"
                )
            if name != "observation":
                check_vector(name, column)


def _bounds(rows: Mapping[str, Array]) -> Iterator[tuple[int, int]]:
    """Go through (first row, row after the last) of each episode; the last row ends one."""
    over = rows["terminated"] | rows["truncated"]
    over[-1:] = True
    ends = np.flatnonzero(over) + 1
    yield from pairwise([0, *ends.tolist()])


def _cut(rows: Mapping[str, Array]) -> Iterator[Episode]:
    """Cut rows in the order of time where an episode ended, and after the last."""
    seen, following = rows["observation"], rows["next_observation"]
    for first, end in _bounds(rows):
        if not np.array_equal(following[first : end - 1], seen[first + 1 : end]):
            raise HyqError(
                f"within rows {first} to {end - 1} 'next_observation' is not the 'observation' of "
                "the row after it: they are out of order or lack ends (for transitions in any "
                "order use Dataset.from_arrays)"
            )
        yield Episode(
            np.concatenate((seen[first:end], following[end - 1 : end])),
            rows["action"][first:end],
            rows["reward"][first:end],
            bool(rows["terminated"][end - 1]),
        )


def _cut_without_ends(rows: Mapping[str, Array]) -> Iterator[Episode]:
    """Do the same for rows that do not say what each of them led to."""
    seen = rows["observation"]
    for first, end in _bounds(rows):
        terminated = bool(rows["terminated"][end - 1])
        last = end if terminated else end - 1
        if last > first:  # an episode that was cut off after one row has no transition left
            yield Episode(
                np.concatenate((seen[first:end], seen[end - 1 : last])),
                rows["action"][first:last],
                rows["reward"][first:last],
                terminated,
            )


def _packed(episode: Episode) -> tuple[Array | PackedFrames, dict[str, Array]]:
    """Compress an episode's images, and make its other columns vectors."""
    observation = episode.observation
    images = is_image(observation.shape[1:], observation.dtype)
    lost = np.zeros(len(episode.action), np.bool_)
    return PackedFrames.pack(observation) if images else observation, {
        "action": episode.action,
        "reward": episode.reward,
        "life_lost": lost if episode.life_lost is None else episode.life_lost,
        "length": np.array([len(episode.action)]),
        "terminated": np.array([episode.terminated]),
    }
