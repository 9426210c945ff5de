"""Drawing slots in proportion to their priorities: a sum tree, wide and therefore shallow.

A binary tree over a million slots has twenty levels, each a few NumPy calls. Here a node has 32
children, side by side in one row, and the root, which all draws search together, up to 4096: over
a million slots that leaves two levels below the root, over a hundred thousand only one.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hyq.core.errors import HyqError
from hyq.core.types import BoolArray, FloatArray, IntArray

FAN_OUT = 32
ROOT_FAN_OUT = 4096


class Priorities:
    """Non-negative priorities of `capacity` slots, all of them 0 at first."""

    def __init__(self, capacity: int) -> None:
        """Build the levels from the slots up to the root."""
        self.capacity = capacity
        self.count = 0
        """Slots with a positive priority."""
        self._levels = [_rows_for(capacity)]
        """From the root's children down to the slots; a row holds the children of one node."""
        while len(self._levels[0]) > ROOT_FAN_OUT:
            self._levels.insert(0, _rows_for(len(self._levels[0])))
        self._root = np.zeros(len(self._levels[0]))
        self._sums = [self._root, *(level.reshape(-1) for level in self._levels[:-1])]
        """The sum of each row of a level, which is where the level above has that row's node."""

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._root.sum())

    @property
    def leaves(self) -> FloatArray:
        """The priority of every slot, as a view that cannot be written to."""
        view = self._levels[-1].reshape(-1)[: self.capacity]
        view.flags.writeable = False
        return view

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._root.nbytes + sum(level.nbytes for level in self._levels)

    def set(self, slots: IntArray, priority: FloatArray) -> None:
        """Give `slots` new priorities; the last one counts where a slot is named twice."""
        if len(slots) == 0:
            return
        lowest = priority.min()
        if not 0.0 <= lowest <= priority.max() < np.inf:
            raise HyqError("priorities must be finite and not negative: has learning diverged?")
        leaves = self._levels[-1].reshape(-1)
        was_positive = leaves[slots] > 0.0
        leaves[slots] = priority
        if not (lowest > 0.0 and was_positive.all()):  # seldom, but for new transitions
            self._recount(slots, was_positive, leaves[slots] > 0.0)
        nodes = slots
        for level, above in self._upwards():
            nodes = nodes // FAN_OUT
            # Sums are taken anew and never adjusted by a difference, so rounding cannot pile up.
            above[nodes] = level.take(nodes, axis=0).sum(axis=1)

    def restore(self, leaves: FloatArray | BoolArray) -> None:
        """Give every slot its priority at once."""
        self._levels[-1].reshape(-1)[: self.capacity] = leaves
        self.count = int(np.count_nonzero(leaves))
        for level, above in self._upwards():
            above[: len(level)] = level.sum(axis=1)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Draw slots and their probabilities: one from each of `count` equal parts of the total."""
        upto = self._root.cumsum()
        total = float(upto[-1])
        if total <= 0.0:
            raise HyqError("there is nothing to draw: every priority is 0")
        draws = np.arange(count)
        rest = (draws + rng.random(count)) * (total / count)
        # Rounding may carry `rest` to the end of the sums. Short of it, the first child whose
        # cumulative sum exceeds `rest` has raised that sum, so its priority is not 0.
        node = upto.searchsorted(np.minimum(rest, np.nextafter(total, 0.0)), side="right")
        rest -= upto[node] - self._root[node]
        for level in self._levels:
            rows = level.take(node, axis=0)
            upto = rows.cumsum(axis=1)
            rest = np.maximum(np.minimum(rest, np.nextafter(upto[:, -1], 0.0)), 0.0)
            child = (upto > rest[:, None]).argmax(axis=1)
            rest -= upto[draws, child] - rows[draws, child]
            node = node * FAN_OUT + child
        return node, self._levels[-1].reshape(-1)[node] / total

    def _upwards(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Pair each level with the vector of its rows' sums, from the slots to the root."""
        yield from zip(reversed(self._levels), reversed(self._sums), strict=True)

    def _recount(self, slots: IntArray, was: BoolArray, now: BoolArray) -> None:
        self.count += len(set(slots[now].tolist())) - len(set(slots[was].tolist()))


def _rows_for(children: int) -> NDArray[np.float64]:
    return np.zeros((-(-children // FAN_OUT), FAN_OUT))
