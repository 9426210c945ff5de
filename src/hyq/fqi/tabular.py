"""The class of all functions of finitely many states and actions."""

from dataclasses import dataclass

import numpy as np

from hyq.core.types import Array, FloatArray
from hyq.fqi.classes import DiscreteValueFunction, Regression


@dataclass(frozen=True, eq=False)
class TabularFunction(DiscreteValueFunction):
    """One value for each (state index, action)."""

    table: FloatArray
    """Shape (S, A)."""

    def values(self, observation: Array) -> FloatArray:
        """Look the states up."""
        return self.table[observation]


@dataclass(frozen=True)
class TabularClass:
    """F_h = R^(S x A): least squares is the weighted mean of each cell."""

    states: int
    actions: int

    def zero(self) -> TabularFunction:
        """Return the zero table."""
        return TabularFunction(np.zeros((self.states, self.actions)))

    def fit(
        self, problem: Regression, start: TabularFunction, rng: np.random.Generator
    ) -> TabularFunction:
        """Average the targets of each cell; a cell without data is zero (minimum norm)."""
        cell = np.ravel_multi_index(
            (problem.observation, problem.action), (self.states, self.actions)
        )
        cells = self.states * self.actions
        mass = np.bincount(cell, problem.weight, cells)
        total = np.bincount(cell, problem.weight * problem.target, cells)
        mean = np.divide(total, mass, out=np.zeros(cells), where=mass > 0)
        return TabularFunction(mean.reshape(self.states, self.actions))
