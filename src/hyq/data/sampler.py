"""Minibatches from offline data and replayed experience together, in any proportion.

Each source keeps its own priorities. A batch says which row came from where, so that new priorities
return to the buffer that owns the row.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear
from hyq.core.trees import Tree, tree_map
from hyq.core.types import FloatArray, IntArray
from hyq.data.replay_buffer import ReplayBuffer, Rows


@dataclass(frozen=True)
class Batch:
    """A minibatch as tensors on the agent's device."""

    observation: Tree
    action: Tensor
    reward: Tensor
    """Summed over n steps, discounted."""
    discount: Tensor
    """gamma^n times the continuation: 0 where the episode terminated, never where truncated."""
    next_observation: Tree
    weight: Tensor
    """Importance weights, at most one, that undo the bias of drawing by priority."""
    offline: Tensor
    """Which rows are from the offline data."""
    value_range: tuple[float, float] | None = None
    """The smallest and the largest return possible with the rewards of both sources stored so far;
    None where gamma is 1."""
    return_to_go: Tensor | None = None
    """Discounted return of the rest of the episode where the data has it to its end, and minus
    infinity elsewhere, where an algorithm needs it."""
    one_step: "Batch | None" = None
    """The same rows with single-step rewards, discounts and next observations, where an algorithm
    needs them."""

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.reward)


class OfflineShare(Protocol):
    """The rule that says how many rows of a minibatch come from the offline data.

    A rule of a user's own is any function of (batch_size, online_step, rng).
    """

    def __call__(self, batch_size: int, step: int, rng: np.random.Generator) -> int:
        """Return the number of offline rows."""
        ...


@dataclass(frozen=True)
class Split:
    """Every minibatch holds the share beta, exact on average where that is a fraction."""

    beta: PiecewiseLinear

    def __call__(self, batch_size: int, step: int, rng: np.random.Generator) -> int:
        """Return beta times the batch size, rounded up or down at random."""
        rows = self.beta(step) * batch_size
        whole = math.floor(rows)
        return whole + int(rng.random() < rows - whole)


@dataclass(frozen=True)
class Bernoulli:
    """The whole minibatch is offline with probability beta, else online (Algorithm 3, line 10)."""

    beta: PiecewiseLinear

    def __call__(self, batch_size: int, step: int, rng: np.random.Generator) -> int:
        """Return all or nothing."""
        return batch_size if rng.random() < self.beta(step) else 0


@dataclass(frozen=True)
class ByPriority:
    """Each row is offline with the offline data's share of all priority, as if in one buffer."""

    offline: ReplayBuffer
    online: ReplayBuffer

    def __call__(self, batch_size: int, step: int, rng: np.random.Generator) -> int:
        """Return how many of the rows are offline."""
        total = self.offline.total_priority
        return int(rng.binomial(batch_size, total / (total + self.online.total_priority)))


Mix = Literal["split", "bernoulli"]
MIXES: dict[Mix, Callable[[PiecewiseLinear], OfflineShare]] = {
    "split": Split,
    "bernoulli": Bernoulli,
}


@dataclass(frozen=True)
class Source:
    """A buffer, with how it is drawn from."""

    buffer: ReplayBuffer
    n_step: int
    """Rewards summed before bootstrapping."""
    exponent: float
    """Priority is (|TD error| + epsilon) to this power; 0 draws uniformly."""
    epsilon: float
    """Keeps rows without error from never being drawn again."""

    def draw(
        self, count: int, importance: float, rng: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """Draw slots, and the importance weights (N P(i))^-importance over their largest.

        Schaul et al. (2016), section 3.4.
        """
        if len(self.buffer) == 0:
            raise HyqError("the replay buffer holds no transition yet: act before learning")
        if not self.exponent:
            return self.buffer.draw_uniformly(count, rng), np.ones(count, np.float32)
        slots, probability = self.buffer.draw(count, rng)
        weight = (len(self.buffer) * probability) ** -importance
        return slots, (weight / weight.max()).astype(np.float32)

    def set_priorities(self, slots: IntArray, td_error: FloatArray) -> None:
        """Give rows the priorities of their newest errors."""
        if self.exponent:
            priority = (np.abs(td_error) + self.epsilon) ** self.exponent
            self.buffer.set_priorities(slots, priority)


@dataclass(frozen=True)
class Drawn:
    """A batch, and where its rows came from."""

    batch: Batch
    parts: Sequence[tuple[Source, IntArray]]
    """Sources and slots, in the order of the rows."""
    offline_rows: int
    """How many of the rows are from the offline data; they come first."""

    def set_priorities(self, td_error: FloatArray) -> None:
        """Return each row's new TD error to the buffer that owns it."""
        start = 0
        for source, slots in self.parts:
            source.set_priorities(slots, td_error[start : start + len(slots)])
            start += len(slots)


@dataclass(frozen=True)
class HybridSampler:
    """Draws minibatches of offline data and of the agent's own experience."""

    offline: Source | None
    online: Source | None
    share: OfflineShare
    device: str = "cpu"
    one_step: bool = False
    """Whether batches also hold the single-step version of their rows."""
    return_to_go: bool = False
    """Whether batches also hold the data's returns."""

    def draw(
        self,
        size: int,
        step: int,
        *,
        importance: float,
        gamma: float,
        rng: np.random.Generator,
        offline_only: bool = False,
    ) -> Drawn:
        """Draw `size` rows; all offline where that is requested, or where nothing else is there."""
        offline = self.share(size, step, rng)
        if offline_only or self.online is None:
            offline = size
        if not 0 <= offline <= size:
            raise HyqError(f"an offline share of {offline} rows does not fit in {size}")
        counts = ((self.offline, offline), (self.online, size - offline))
        parts, weights = [], []
        for source, count in counts:
            if count:
                if source is None:
                    raise HyqError("there is no offline data to draw from: give some, or beta 0")
                slots, weight = source.draw(count, importance, rng)
                parts.append((source, slots))
                weights.append(weight)
        rows = _joined([s.buffer.gather(slots, s.n_step, gamma) for s, slots in parts])
        weight, bounds = np.concatenate(weights), self._value_range(gamma)
        batch = self._tensors(rows, weight, offline, bounds)
        if self.one_step:
            single = batch
            if any(source.n_step > 1 for source, _ in parts):
                rows = _joined([s.buffer.gather(slots, 1, gamma) for s, slots in parts])
                single = self._tensors(rows, weight, offline, bounds)
            batch = replace(batch, one_step=single)
        if self.return_to_go:
            found = np.concatenate([source.buffer.return_to_go(slots) for source, slots in parts])
            batch = replace(batch, return_to_go=torch.from_numpy(found).to(self.device))
        return Drawn(batch, parts, offline)

    def _value_range(self, gamma: float) -> tuple[float, float] | None:
        """Return the discounted sums of the smallest and of the largest reward, forever.

        0 lies between them, for what comes after a termination. So n-step returns and what is left
        beyond a lost life stay within, too.
        """
        if gamma == 1:
            return None
        met = [source.buffer.reward_range for source in (self.offline, self.online) if source]
        lowest, highest = min(low for low, _ in met), max(high for _, high in met)
        return lowest / (1 - gamma), highest / (1 - gamma)

    def _tensors(
        self, rows: Rows, weight: FloatArray, offline: int, bounds: tuple[float, float] | None
    ) -> Batch:
        """Move rows to the device, once."""

        def tensor(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
            return torch.from_numpy(array).to(self.device, non_blocking=True)

        from_data = np.zeros(len(weight), dtype=bool)
        from_data[:offline] = True
        return Batch(
            tree_map(tensor, rows.observation),
            tensor(rows.action),
            tensor(rows.reward),
            tensor(rows.discount),
            tree_map(tensor, rows.next_observation),
            tensor(weight),
            tensor(from_data),
            bounds,
        )


def _joined(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    columns = {
        name: tree_map(lambda *leaves: np.concatenate(leaves), *(getattr(p, name) for p in parts))
        for name in vars(parts[0])
    }
    return Rows(**columns)
