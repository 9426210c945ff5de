"""Offline data on disk as a replay buffer reads it: each row when it is needed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hyq.core.trees import Tree, leaves, tree_map
from hyq.core.types import Array, FloatArray, IntArray
from hyq.data.columns import read_at_random, release
from hyq.data.dataset import Dataset

LARGE = 2**30
"""Bytes of observations on disk beyond which they stay there: to read them takes longer."""
_HELD = 256
"""Rows read before the system takes back what it holds of the file: each brings a block along."""


def stays_on_disk(dataset: Dataset, prepare: Callable[[Tree], Tree]) -> bool:
    """Tell whether observations are large, plain, and seen just as they are stored."""
    columns = list(leaves(dataset.observation))
    if not all(isinstance(column, np.memmap) for column in columns):
        return False
    some = tree_map(lambda column: np.asarray(column[:2]), dataset.observation)
    pairs = zip(leaves(some), leaves(prepare(some)), strict=True)
    same = all(np.array_equal(one, other) and one.dtype == other.dtype for one, other in pairs)
    return same and sum(column.nbytes for column in columns) > LARGE


class StoredFrames:
    """Observations by slot, which is their row."""

    nbytes = 0

    def __init__(self, column: Array, dtype: Any = None) -> None:
        single = np.dtype(np.float32) if column.dtype.kind == "f" else column.dtype
        self._column, self._dtype, self._read = column, dtype or single, 0
        read_at_random(column)

    def get(self, slots: IntArray) -> Array:
        """Return the observations of `slots`, an array of any shape."""
        found = np.empty((slots.size, *self._column.shape[1:]), self._dtype)
        rows = np.minimum(slots.reshape(-1), len(self._column) - 1)
        for start in range(0, len(rows), _HELD):
            part = rows[start : start + _HELD]
            found[start : start + _HELD] = self._column[part]
            self._read += len(part)
            if self._read >= _HELD:
                release(self._column)
                self._read = 0
        return found.reshape(*slots.shape, *found.shape[1:])


class StoredColumn:
    """What belongs to slots, worked out from the rows of a dataset."""

    nbytes = 0

    def __init__(self, read: Callable[[IntArray], Array]) -> None:
        self._read = read

    def __getitem__(self, slots: IntArray) -> Array:
        return self._read(slots)

    def take(self, slots: IntArray, axis: int = 0) -> Array:
        """Return the values of slots; the axis is always that of the slots."""
        return self._read(slots)


def stored_columns(
    dataset: Dataset,
    from_env: Callable[[Array], Array],
    scale_reward: Callable[[FloatArray], FloatArray],
    life_loss_discount: float,
    truncation_terminates: bool,
) -> dict[str, Any]:
    """Return the columns of a buffer that holds a dataset, none of them in memory."""
    ends = np.cumsum(dataset.length)
    first = ends - dataset.length + np.arange(len(ends))  # slots at which episodes begin
    over = dataset.terminated | truncation_terminates
    actions, rewards, lost = (
        StoredFrames(column, column.dtype)
        for column in (dataset.action, dataset.reward, dataset.life_lost)
    )

    def episode(slots: IntArray) -> IntArray:
        return np.searchsorted(first, slots, side="right") - 1

    def reached_by(slots: IntArray) -> IntArray:
        """Return the transitions that led to slots; any for those that begin an episode."""
        return np.maximum(slots - episode(slots) - 1, 0)

    def continuation(slots: IntArray) -> Array:
        row = reached_by(slots)
        share = np.where(lost.get(row), life_loss_discount, 1.0)
        number = np.minimum(episode(slots), len(ends) - 1)
        return (share * ~((row == ends[number] - 1) & over[number])).astype(np.float32)

    columns: dict[str, Callable[[IntArray], Array]] = {
        "action": lambda slots: from_env(actions.get(reached_by(slots))),
        "reward": lambda slots: scale_reward(rewards.get(reached_by(slots))).astype(np.float32),
        "continuation": continuation,
        "timestep": lambda slots: slots - first[episode(slots)],
    }
    return {name: StoredColumn(read) for name, read in columns.items()}
