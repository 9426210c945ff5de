"""Offline data by step, as the methods for a finite horizon read it."""

from functools import cached_property

import numpy as np

from hyq.core.types import Array, BoolArray, FloatArray, IntArray, Transitions
from hyq.data.columns import Column


class StepView:
    """Transitions sorted by the timestep at which they happened: D^nu_0, D^nu_1, ...

    Rows of one timestep keep the order of the dataset. Where every episode has one transition and
    they are sorted already, observations are views of the dataset's own.
    """

    def __init__(
        self,
        observation: Column,
        action: Array,
        reward: FloatArray,
        length: IntArray,
        terminated: BoolArray,
        timestep: IntArray,
    ) -> None:
        """Sort the columns of a dataset; observations are read when they are needed."""
        self._observation = observation
        self._ordered = len(action) > len(length)
        ends = np.cumsum(length)
        episode: IntArray = np.repeat(np.arange(len(ends)), length)
        step: IntArray = np.arange(len(action)) + (timestep - ends + length)[episode]
        discount: FloatArray = np.ones(len(action), np.float32)
        discount[ends - 1] = ~terminated
        self._order: IntArray | None = None
        if (step[1:] < step[:-1]).any():
            self._order = np.argsort(step, kind="stable")
            step, episode = step[self._order], episode[self._order]
            action, reward = action[self._order], reward[self._order]
            discount = discount[self._order]
        self.action, self.reward, self.discount = action, reward, discount
        self.episode: IntArray = episode
        """The episode that each row is of."""
        self.step: IntArray = step
        """The timestep of each row."""

    def __len__(self) -> int:
        """Count the transitions."""
        return len(self.step)

    @property
    def horizon(self) -> int:
        """Number of steps, the largest timestep plus one."""
        return int(self.step[-1]) + 1

    @cached_property
    def transitions(self) -> Transitions:
        """All rows."""
        return self.rows(slice(None))

    def at(self, h: int) -> Transitions:
        """Return D^nu_h: the transitions that happened at timestep `h`, as a view."""
        return self.transitions[slice(*np.searchsorted(self.step, (h, h + 1)))]

    def rows(self, where: slice | IntArray) -> Transitions:
        """Return some rows, without reading others."""
        if isinstance(where, slice) and self._order is None and not self._ordered:
            start, stop, stride = where.indices(len(self))
            seen: slice | IntArray = slice(2 * start, 2 * stop, 2 * stride)
            after: slice | IntArray = slice(2 * start + 1, 2 * stop, 2 * stride)
        else:
            taken = np.arange(len(self))[where] if self._order is None else self._order[where]
            seen = taken + self.episode[where]
            after = seen + 1
        found = Transitions(
            self._observation[seen],
            self.action[where],
            self.reward[where],
            self.discount[where],
            self._observation[after],
        )
        for column in vars(found).values():
            column.flags.writeable = False
        return found
