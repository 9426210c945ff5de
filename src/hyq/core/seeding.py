"""One seed, many named streams, no global random state.

A stream is addressed by name rather than by the order in which it was opened, so that adding a
consumer somewhere never shifts the numbers another consumer sees, and a resumed run can open the
stream of iteration 17 without replaying the sixteen before it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hyq.core.errors import HyqError


@dataclass(frozen=True)
class Streams:
    """Independent random streams, each named by a path such as `("collect", 17)`."""

    seed: int
    prefix: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise HyqError(f"a seed must not be negative, got {self.seed}")

    def below(self, *path: str | int) -> "Streams":
        """Return the streams whose paths begin with `path`, for a part that names its own."""
        return Streams(self.seed, (*self.prefix, *path))

    def generator(self, *path: str | int) -> np.random.Generator:
        """Open the stream at `path`; the same seed and path always give the same numbers."""
        return np.random.default_rng(self._sequence(path))

    def integer(self, *path: str | int) -> int:
        """Derive a seed in [0, 2**31) for code that wants an integer, such as `env.reset`."""
        return int(self._sequence(path).generate_state(1)[0] >> 1)

    def counted(self, *path: str | int) -> "CountedStream":
        """Open a stream for every count at `path`, for what is drawn thousands of times."""
        return CountedStream(self._sequence(path).generate_state(2, np.uint64).astype(np.uint64))

    def _sequence(self, path: tuple[str | int, ...]) -> np.random.SeedSequence:
        digest = hashlib.sha256(repr((*self.prefix, *path)).encode()).digest()
        key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
        return np.random.SeedSequence(entropy=self.seed, spawn_key=key)


class CountedStream:
    """Streams numbered by a count, all read through one generator that moves between them.

    Opening a stream of its own for every count takes twenty times as long.
    """

    def __init__(self, key: NDArray[np.uint64]) -> None:
        """Take Philox, whose place is a counter: the count is its highest word."""
        self._bits = np.random.Philox(key=key)
        self._state = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, count: int) -> np.random.Generator:
        """Return the generator at the start of a count's stream."""
        self._state["state"]["counter"][3] = count
        self._bits.state = self._state
        return self._generator


@contextmanager
def torch_seed(seed: int, device: str = "cpu") -> Iterator[None]:
    """Let PyTorch draw from a seed inside the block, and leave its global state as it was.

    Modules such as Dropout take random numbers from nowhere else.
    """
    import torch  # noqa: PLC0415 - seeds are also made where PyTorch is not needed

    generators = [torch.default_generator]
    if device.startswith("cuda"):
        generators.append(torch.cuda.default_generators[torch.device(device).index or 0])
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
