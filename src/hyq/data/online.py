"""What the agent itself collected, kept by step and by iteration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hyq.core.types import Array, Transitions

Batch = tuple[Transitions, ...]
"""One iteration's tuples D^t_h, one entry for every step h."""


@dataclass(frozen=True)
class OnlineStore:
    """The aggregate of all online batches, addressed by step. Adding to it makes another."""

    batches: tuple[Batch, ...] = ()
    """One for every iteration that collected."""

    def __add__(self, batch: Batch) -> "OnlineStore":
        """Append one iteration's tuples."""
        return OnlineStore((*self.batches, batch))

    def at(self, h: int) -> list[Transitions]:
        """Return D^1_h, ..., D^t_h."""
        return [batch[h] for batch in self.batches]

    def __len__(self) -> int:
        """Count the stored transitions."""
        return sum(len(part) for batch in self.batches for part in batch)

    def newest(self) -> dict[str, Array]:
        """Return the newest batch for storage: end to end, with the rows of each step counted."""
        batch = self.batches[-1]
        counts = np.array([len(part) for part in batch])
        return {**vars(Transitions.concatenate(batch)), "counts": counts}

    @classmethod
    def rebuild(cls, stored: Iterable[Mapping[str, Array]]) -> "OnlineStore":
        """Undo `newest`, given what it returned after every iteration that collected."""
        batches = []
        for columns in stored:
            rows = Transitions(**{n: column for n, column in columns.items() if n != "counts"})
            counts = columns["counts"].tolist()
            ends = np.cumsum(counts)
            batches.append(tuple(rows[e - n : e] for n, e in zip(counts, ends, strict=True)))
        return cls(tuple(batches))
