"""Saving and loading the state of any run, atomically and without pickles.

What a run adds to data that only grows never changes afterwards, so each addition is a part with a
file of its own. The rest is in `state.safetensors`, which is replaced last and in one piece, and
names the parts that count with their checksums; the others are removed after that.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hyq.core.arrays import load_arrays, save_arrays
from hyq.core.errors import HyqError
from hyq.core.files import DAMAGE, raising_damage
from hyq.core.types import Array

T = TypeVar("T")


class Checkpoint:
    """A state on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "state.safetensors"
        self.parts: list[tuple[int, str, Any]] = []
        """Number and checksum of each part that counts, and what its writer says of it."""

    def save(
        self,
        state: Mapping[str, Array],
        about: Mapping[str, Any],
        part: Mapping[str, Array] = {},
        part_about: Any = None,
        counts: Callable[[Any], bool] = lambda part_about: True,
    ) -> None:
        """Write a part, and then the state with what `about` says of the run."""
        self._directory.mkdir(exist_ok=True)
        if part:
            number = self.parts[-1][0] + 1 if self.parts else 1
            digest = save_arrays(self._part(number), part)
            self.parts = [one for one in self.parts if counts(one[2])]
            self.parts.append((number, digest, part_about))
        words = json.dumps({**about, "parts": self.parts}).encode()
        save_arrays(self.path, {**state, "about": np.frombuffer(words, np.uint8)})
        kept = {self._part(number) for number, _, _ in self.parts}
        for path in self._directory.glob("part-*.safetensors"):
            if path not in kept:
                path.unlink()

    def load(self) -> tuple[dict[str, Array], dict[str, Any], list[dict[str, Array]]] | None:
        """Return the newest state, what was said of the run, and the parts; None without one."""
        if not self.path.exists():
            return None
        state = load_arrays(self.path)
        try:
            about: dict[str, Any] = json.loads(state.pop("about").tobytes())
            self.parts = [(number, digest, said) for number, digest, said in about.pop("parts")]
        except DAMAGE:
            raise HyqError(f"{self.path} is damaged: it is not the state of a run") from None
        return state, about, [load_arrays(self._part(n), digest) for n, digest, _ in self.parts]

    def _part(self, number: int) -> Path:
        return self._directory / f"part-{number:05d}.safetensors"


def after_loading(steps: Iterator[T], state: Path) -> Iterator[T]:
    """Pass steps on; what fails before the first is laid to the state that was loaded."""
    with raising_damage(state):
        first = list(islice(steps, 1))
    yield from first
    yield from steps


class TrainingCheckpoint:
    """Checkpoints of a deep run: each part holds what its ring of experience took in since."""

    def __init__(self, directory: Path) -> None:
        self._checkpoint = Checkpoint(directory)
        self.path = self._checkpoint.path

    def save(self, training: Any, about: Mapping[str, Any]) -> None:
        """Write the state of a training, and with it what `about` says of the run."""
        buffer, parts = training.buffer, self._checkpoint.parts
        if buffer is None:
            self._checkpoint.save(training.state(), about)
            return
        since = np.array(parts[-1][2] if parts else [0] * buffer.num_envs)
        oldest = buffer.written - buffer.length
        self._checkpoint.save(
            training.state(),
            about,
            buffer.export(since),
            buffer.written.tolist(),
            # The ring has overwritten the other parts.
            lambda ends: bool((np.array(ends) > oldest).any()),
        )

    def load(self, training: Any) -> dict[str, Any]:
        """Bring a new training to the newest state; return what was said of the run, if any."""
        if (saved := self._checkpoint.load()) is None:
            return {}
        state, about, parts = saved
        try:
            if parts:
                # What came before the first part that counts has been overwritten.
                training.buffer.written = parts[0]["first"].copy()
            for part in parts:
                training.buffer.load(part)
            training.load_state(state)
        except DAMAGE as error:
            raise HyqError(
                f"{self.path} is of another configuration: resume it with its own ({error!r})"
            ) from None
        return about


def about_run(directory: Path) -> dict[str, Any]:
    """Return what was said of the run when its newest checkpoint was saved."""
    saved = Checkpoint(directory).load()
    return saved[1] if saved else {}
