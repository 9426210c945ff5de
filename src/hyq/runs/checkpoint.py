"""Saving and loading the state of any algorithm, atomically and without pickles.

What an iteration adds never changes afterwards, so each gets a file of its own; the rest is in
`state.safetensors`, which is replaced last and in one piece and says how many of the others count.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.data.replay_buffer import ReplayBuffer
from hyq.fqi.base import Algorithm, S, Snapshot


def save_state(directory: Path, snapshot: Snapshot, iteration: int, elapsed: float) -> None:
    """Write what the iteration added, then everything else."""
    directory.mkdir(exist_ok=True)
    if snapshot.appended:
        save_arrays(_addition(directory, iteration), snapshot.appended)
    progress = {"run.iteration": np.array(iteration), "run.elapsed": np.array(elapsed)}
    save_arrays(directory / "state.safetensors", {**snapshot.replaced, **progress})


def load_state(directory: Path, algorithm: Algorithm[S]) -> tuple[S, float] | None:
    """Return the newest state and the seconds it took, or None where none was saved."""
    path = directory / "state.safetensors"
    if not path.exists():
        return None
    replaced = load_arrays(path)
    iteration = int(replaced.pop("run.iteration"))
    elapsed = float(replaced.pop("run.elapsed"))
    additions = [_addition(directory, t) for t in range(1, iteration + 1)]
    if not any(addition.exists() for addition in additions):
        additions = []  # an offline algorithm adds nothing
    return algorithm.restore(replaced, [load_arrays(addition) for addition in additions]), elapsed


def _addition(directory: Path, iteration: int) -> Path:
    return directory / f"added-{iteration:05d}.safetensors"


class TrainingCheckpoint:
    """Checkpoints of a deep run: its state, and its ring of experience in parts.

    Each part holds what the ring took in since the one before. `state.safetensors` is replaced
    last, in one piece, and names the parts that count with their checksums; parts that the ring
    has overwritten are removed after that, when nothing needs them any more.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parts: list[tuple[int, str, list[int]]] = []
        """Number and checksum of each part that counts, and how far it went in each environment."""

    def save(self, training: Any, about: Mapping[str, Any]) -> None:
        """Write the state of a training, and with it what `about` says of the run."""
        self._directory.mkdir(exist_ok=True)
        if training.buffer is not None:
            self._save_part(training.buffer)
        words = json.dumps({**about, "parts": self._parts}).encode()
        save_arrays(self._state, {**training.state(), "about": np.frombuffer(words, np.uint8)})
        kept = {self._part(number) for number, _, _ in self._parts}
        for path in self._directory.glob("part-*.safetensors"):
            if path not in kept:
                path.unlink()

    def load(self, training: Any) -> dict[str, Any]:
        """Bring a new training to the newest state; return what was said of the run, if any."""
        if not self._state.exists():
            return {}
        state = load_arrays(self._state)
        try:
            about: dict[str, Any] = json.loads(state.pop("about").tobytes())
            self._parts = [(number, digest, ends) for number, digest, ends in about.pop("parts")]
            parts = [load_arrays(self._part(n), digest) for n, digest, _ in self._parts]
            if parts:
                # What came before the first part that counts has been overwritten.
                training.buffer.written = parts[0]["first"].copy()
            for part in parts:
                training.buffer.load(part)
            training.load_state(state)
        except (KeyError, ValueError, IndexError, RuntimeError, TypeError) as error:
            raise HyqError(
                f"{self._state} is of another configuration: resume it with its own ({error!r})"
            ) from None
        return about

    def _save_part(self, buffer: ReplayBuffer) -> None:
        number = self._parts[-1][0] + 1 if self._parts else 1
        since = self._parts[-1][2] if self._parts else [0] * buffer.num_envs
        digest = save_arrays(self._part(number), buffer.export(np.array(since)))
        oldest = buffer.written - buffer.length
        self._parts = [part for part in self._parts if (np.array(part[2]) > oldest).any()]
        self._parts.append((number, digest, buffer.written.tolist()))

    @property
    def _state(self) -> Path:
        return self._directory / "state.safetensors"

    def _part(self, number: int) -> Path:
        return self._directory / f"part-{number:05d}.safetensors"


def about_run(directory: Path) -> dict[str, Any]:
    """Return what was said of the run when its newest checkpoint was saved."""
    saved = load_arrays(directory / "state.safetensors")
    about: dict[str, Any] = json.loads(saved["about"].tobytes())
    return about
