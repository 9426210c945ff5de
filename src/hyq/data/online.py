"""What the agent itself collected, kept by step and by iteration."""

from collections.abc import Sequence

import numpy as np

from hyq.core.types import Transitions

Batch = tuple[Transitions, ...]
"""One iteration's tuples D^t_h, one entry for every step h."""


class OnlineStore:
    """The aggregate of all online batches, addressed by step. It only ever grows."""

    def __init__(self, batches: Sequence[Batch] = ()) -> None:
        """Start from the batches of earlier iterations."""
        self.batches = list(batches)

    def add(self, batch: Batch) -> None:
        """Append one iteration's tuples."""
        self.batches.append(batch)

    def at(self, h: int) -> list[Transitions]:
        """Return D^1_h, ..., D^t_h."""
        return [batch[h] for batch in self.batches]

    def __len__(self) -> int:
        """Count the stored transitions."""
        return sum(len(part) for batch in self.batches for part in batch)


def pack(batch: Batch) -> tuple[Transitions, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Lay a batch end to end with the number of rows of each step, for storage."""
    return Transitions.concatenate(batch), np.array([len(part) for part in batch])


def unpack(rows: Transitions, counts: Sequence[int]) -> Batch:
    """Undo `pack`."""
    ends = np.cumsum(counts)
    return tuple(rows[end - n : end] for n, end in zip(counts, ends, strict=True))
