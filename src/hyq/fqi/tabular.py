"""The class of all functions of finitely many states and actions."""

import math
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

    def fit(self, problem: Regression) -> TabularFunction:
        """Average the targets of each cell; a cell without data is zero (minimum norm)."""
        shape = self.states, self.actions
        cell = np.ravel_multi_index((problem.rows.observation, problem.rows.action), shape)
        mass = np.bincount(cell, problem.weight, math.prod(shape))
        total = np.bincount(cell, problem.weight * problem.target, math.prod(shape))
        mean = np.divide(total, mass, out=np.zeros(mass.shape), where=mass > 0)
        return TabularFunction(mean.reshape(shape))
