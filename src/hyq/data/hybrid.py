"""Minibatches from two replays at once, offline and online, in any proportion.

Each source keeps its own priorities. A batch remembers which row came from where, so that new
priorities return to the replay that owns the row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray, IntArray, Transitions, below
from hyq.data.replay import Replay

MixForm = Literal["coin", "split"]
"""A coin decides for the whole minibatch, as in the paper, or every minibatch is split."""


@dataclass(frozen=True)
class Source:
    """A replay, with the settings that are its own."""

    replay: Replay
    n_step: int
    """Rewards that are summed before bootstrapping."""
    exponent: float
    """Priority is (|TD error| + epsilon) to this power; 0 draws uniformly."""
    epsilon: float
    """Keeps rows without error from never being drawn again."""

    def draw(
        self, count: int, importance: float, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """Draw slots and the importance weights that undo the bias of drawing by priority."""
        if not self.exponent:
            return self.replay.draw_evenly(count, rng), np.ones(count, np.float32)
        slots, probability = self.replay.draw(count, rng)
        return slots, importance_weights(probability, len(self.replay), importance)


class Part(NamedTuple):
    """The rows of a batch that come from one source."""

    source: Source
    slots: IntArray
    written: IntArray
    """What the replay had written when they were drawn."""

    def prioritise(self, td_error: FloatArray) -> None:
        """Give rows the priorities of their newest errors."""
        source = self.source
        if source.exponent:
            priority = (np.abs(td_error) + source.epsilon) ** source.exponent
            source.replay.prioritise(self.slots, priority, self.written)


@dataclass(frozen=True)
class Batch:
    """Rows to learn from: those of the logs first, then those the agent collected itself."""

    rows: Transitions
    """Reward summed over n steps, discount gamma^n (0 where terminated), observation n steps on."""
    one_step: Transitions
    """The same rows with single rewards; the same object where every n is 1."""
    weight: FloatArray
    """Importance weights, at most one, that undo the bias of drawing by priority."""
    offline: int
    """How many of the rows are from the logs."""
    parts: Sequence[Part]
    """Where the rows come from."""

    @property
    def per_row(self) -> FloatArray:
        """What each row counts in a mean over the batch."""
        return self.weight / np.float32(len(self.rows))

    def prioritise(self, td_error: FloatArray) -> None:
        """Return each row's new error to the replay that owns it."""
        start = 0
        for part in self.parts:
            part.prioritise(td_error[start : start + len(part.slots)])
            start += len(part.slots)

    def arrays(self) -> dict[str, Array]:
        """Return all of it as named arrays, for `HybridReplay.rebuild`."""
        named = {"weight": self.weight, "offline": np.array(self.offline)}
        named |= {f"rows.{name}": array for name, array in vars(self.rows).items()}
        if self.one_step is not self.rows:
            named |= {f"one_step.{name}": array for name, array in vars(self.one_step).items()}
        for number, part in enumerate(self.parts):
            named |= {f"slots.{number}": part.slots, f"written.{number}": part.written}
        return named


def offline_rows(size: int, share: float, form: MixForm, rng: np.random.Generator) -> int:
    """Decide how many of `size` rows come from the logs; on average it is exactly their share."""
    if form == "coin":
        return size if rng.random() < share else 0
    whole = math.floor(share * size)
    return whole + int(rng.random() < share * size - whole)


@dataclass(frozen=True)
class HybridReplay:
    """The logs and the agent's own experience, drawn from together."""

    offline: Source | None
    online: Source
    form: MixForm

    def sample(
        self,
        size: int,
        share: float,
        importance: float,
        gamma: float,
        rng: np.random.Generator,
        with_one_step: bool = False,
    ) -> Batch:
        """Draw `size` rows, a `share` of them from the logs (all, while nothing else is there).

        `importance` is the exponent of the importance weights: 0 leaves the bias, 1 undoes it.
        `gamma` discounts the rewards that a row sums up, and the value beyond them.
        """
        offline = offline_rows(size, share, self.form, rng)
        if not len(self.online.replay):
            offline = size
        if offline and self.offline is None:
            raise HyqError("there is no offline data to draw from: give some, or set beta to 0")
        parts, weights = [], []
        for source, count in self._sources(offline, size - offline):
            slots, weight = source.draw(count, importance, rng)
            parts.append(Part(source, slots, source.replay.written.copy()))
            weights.append(weight)
        rows = _joined([s.replay.gather(slots, s.n_step, gamma) for s, slots, _ in parts])
        one_step = rows
        if with_one_step and any(part.source.n_step > 1 for part in parts):
            one_step = _joined([s.replay.gather(slots, 1, gamma) for s, slots, _ in parts])
        weight = weights[0] if len(weights) == 1 else np.concatenate(weights)
        return Batch(rows, one_step, weight, offline, parts)

    def rebuild(self, arrays: Mapping[str, Array]) -> Batch:
        """Undo `Batch.arrays`, given the replays as they were."""
        rows, offline = Transitions(**below("rows", arrays)), int(arrays["offline"])
        single = below("one_step", arrays)
        parts = [
            Part(source, arrays[f"slots.{number}"], arrays[f"written.{number}"])
            for number, (source, _) in enumerate(self._sources(offline, len(rows) - offline))
        ]
        one_step = Transitions(**single) if single else rows
        return Batch(rows, one_step, arrays["weight"], offline, parts)

    def _sources(self, offline: int, online: int) -> list[tuple[Source, int]]:
        """Return the sources that so many rows come from, with their shares."""
        counts = ((self.offline, offline), (self.online, online))
        return [(source, count) for source, count in counts if source is not None and count]


def importance_weights(probability: FloatArray, count: int, exponent: float) -> FloatArray:
    """Return (N P(i))^-exponent over its largest (Schaul et al. 2016, section 3.4)."""
    weight = (count * probability) ** -exponent
    return (weight / weight.max()).astype(np.float32)


def _joined(parts: list[Transitions]) -> Transitions:
    return parts[0] if len(parts) == 1 else Transitions.concatenate(parts)
