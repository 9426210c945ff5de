"""What a runner needs of an algorithm: steps to report, a policy to evaluate, a state to save.

An algorithm is a small frozen object made of its settings. Its `run` is a generator, so
logging, evaluation, checkpoints and when to stop are up to the runner that iterates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hyq.core.seeding import Streams
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.fqi.rollout import Policy, VectorEnv


@dataclass(frozen=True)
class Snapshot:
    """A state as named arrays, split by how it grows."""

    replaced: Mapping[str, Array]
    """Parts that every iteration makes anew, such as parameters."""
    appended: Mapping[str, Array]
    """What the newest iteration added to a part that only grows, such as collected data."""


class State(Protocol):
    """Everything the next iteration depends on."""

    def snapshot(self) -> Snapshot:
        """Turn the state into arrays."""
        ...


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Step(Generic[S]):
    """What one iteration of an algorithm left behind."""

    state: S
    """Everything the next iteration depends on."""
    iteration: int
    """Counts from 1, through interruptions."""
    online_steps: int
    """Every environment transition so far, roll-ins included; 0 for offline methods."""
    policy: Policy
    """The policy to evaluate now."""
    metrics: Mapping[str, float]
    """What the iteration reports; each algorithm's file says what its names mean."""
    seconds: Mapping[str, float]
    """Where the wall time went."""


class Algorithm(Protocol[S]):
    """A method that learns from logged data, from an environment, or from both."""

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: S | None = None
    ) -> Iterator[Step[S]]:
        """Yield after every iteration; a state given in is resumed from, to the bit."""
        ...

    def restore(self, replaced: Mapping[str, Array], appended: Sequence[Mapping[str, Array]]) -> S:
        """Undo `State.snapshot`: the newest `replaced`, and every `appended` in order."""
        ...
