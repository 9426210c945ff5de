"""What a runner needs of an algorithm: steps to report, a policy to evaluate, a state to save.

An algorithm is a small frozen object made of its settings. Its `run` is a generator, so
logging, evaluation, checkpoints and when to stop are up to the runner that iterates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hyq.core.seeding import Streams
from hyq.core.trees import flatten, subtree
from hyq.core.types import Array
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.fqi.classes import F, GreedyPolicy, ValueFunction
from hyq.fqi.rollout import VectorEnv


@dataclass(frozen=True)
class State:
    """Everything the next iteration depends on, as a checkpoint keeps it."""

    arrays: Mapping[str, Array]
    """Parameters, optimiser and counters: what every iteration makes anew."""
    online: OnlineStore
    """What was collected, which only grows."""

    @classmethod
    def of(
        cls,
        functions: Sequence[ValueFunction],
        iteration: int = 0,
        online_steps: int = 0,
        online: OnlineStore | None = None,
    ) -> "State":
        """Keep f_0, ..., f_{H-1} and counters."""
        parameters = flatten({h: f.arrays() for h, f in enumerate(functions)})
        counts = {"horizon": len(functions), "iteration": iteration, "online_steps": online_steps}
        arrays = parameters | {name: np.array(count) for name, count in counts.items()}
        return cls(arrays, online or OnlineStore())

    @property
    def counts(self) -> tuple[int, int]:
        """Iterations and online steps so far, through interruptions."""
        return int(self.arrays["iteration"]), int(self.arrays["online_steps"])

    def functions(self, zero: F) -> tuple[F, ...]:
        """Return the functions that `of` kept, given any one of their class."""
        steps = range(int(self.arrays["horizon"]))
        return tuple(zero.with_arrays(subtree(str(h), self.arrays)) for h in steps)


@dataclass(frozen=True)
class Step:
    """What one iteration of an algorithm left behind."""

    state: State
    policy: GreedyPolicy
    """The policy to evaluate now."""
    metrics: Mapping[str, float]
    """What the iteration reports; each algorithm's file says what its names mean."""
    seconds: Mapping[str, float]
    """Where the wall time went."""

    @property
    def iteration(self) -> int:
        """Counts from 1, through interruptions."""
        return self.state.counts[0]

    @property
    def online_steps(self) -> int:
        """Every environment transition so far, roll-ins included; 0 for offline methods."""
        return self.state.counts[1]


class Algorithm(Protocol):
    """A method that learns from logged data, from an environment, or from both."""

    def run(
        self, env: VectorEnv, offline: Dataset, streams: Streams, state: State | None = None
    ) -> Iterator[Step]:
        """Yield after every iteration; a state given in is resumed from, to the bit."""
        ...
