"""Mean and std of a stream of data, of which nothing is kept."""

from collections.abc import Mapping

import numpy as np

from hyq.core.types import Array, FloatArray


class RunningMoments:
    """The mean and the standard deviation of every row seen so far, feature by feature.

    Batches are merged by the formula of Chan, Golub and LeVeque (1983): up to rounding, the result
    is that of all rows at once, whichever way they were cut into batches.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0
        self.mean: FloatArray = np.zeros(shape)
        self._squares: FloatArray = np.zeros(shape)
        """Sum of squared distances from the mean."""

    @property
    def std(self) -> FloatArray:
        """The standard deviation (of the population, as `np.std` has it)."""
        return np.sqrt(self._squares / max(self.count, 1))

    def update(self, rows: Array) -> None:
        """Take in a batch: rows along the first axis."""
        if not len(rows):
            return
        batch = rows.astype(np.float64)
        mean = batch.mean(axis=0)
        total = self.count + len(rows)
        distance = mean - self.mean
        between = np.square(distance) * (self.count * len(rows) / total)
        self._squares = self._squares + np.square(batch - mean).sum(axis=0) + between
        self.mean = self.mean + distance * (len(rows) / total)
        self.count = total

    def state(self) -> dict[str, Array]:
        """Return the moments as arrays."""
        moments = {"count": self.count, "mean": self.mean, "squares": self._squares}
        return {name: np.array(value) for name, value in moments.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Undo `state`."""
        self.count = int(state["count"])
        self.mean, self._squares = state["mean"].copy(), state["squares"].copy()
