"""A finite class of given functions, with every tie broken by an explicit order.

The paper's theorems are stated for finite classes, and its offline counterexample turns on how ties
are broken, both among functions that fit equally well and among actions of equal value.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.offline_hard import A, B, C, Variant, offline_hard_mdp
from hyq.fqi.classes import DiscreteValueFunction, Regression

_TIE = 1e-9
"""Losses closer than this are equal."""


@dataclass(frozen=True, eq=False)
class FiniteFunction(DiscreteValueFunction):
    """A table of values whose greedy policy prefers actions in a given order."""

    table: FloatArray
    """Shape (S, A)."""
    action_order: IntArray
    """All actions; of two with equal value the earlier in this order wins."""

    def values(self, observation: Array) -> FloatArray:
        """Look the states up."""
        return self.table[observation]

    def greedy(self, observation: Array) -> Array:
        """Return argmax_a f_h(s, a) for each row, ties broken by `action_order`."""
        by_preference = self.values(observation)[:, self.action_order]
        return self.action_order[by_preference.argmax(axis=1)]


class FiniteClass:
    """F_h = {f_1, ..., f_K}: least squares tries them all; the earliest of equals wins."""

    def __init__(self, tables: FloatArray, action_order: IntArray | None = None) -> None:
        self.tables = np.asarray(tables, dtype=np.float64)
        if self.tables.ndim != 3 or not len(self.tables):
            raise HyqError(f"tables must have shape (K, S, A), got {self.tables.shape}")
        actions = np.arange(self.tables.shape[2])
        self.action_order = actions if action_order is None else np.asarray(action_order)
        if not np.array_equal(np.sort(self.action_order), actions):
            raise HyqError(f"action_order must list each of {len(actions)} actions once")

    def zero(self) -> FiniteFunction:
        """Return f^1 = 0 (where the algorithm starts, though rarely a member of the class)."""
        return FiniteFunction(np.zeros(self.tables.shape[1:]), self.action_order)

    def fit(self, problem: Regression) -> FiniteFunction:
        """Return the first member whose weighted squared error is the smallest."""
        predictions = self.tables[:, problem.rows.observation, problem.rows.action]
        losses = (predictions - problem.target) ** 2 @ problem.weight
        return FiniteFunction(
            self.tables[np.argmax(losses <= losses.min() + _TIE)], self.action_order
        )


def offline_hard_class() -> FloatArray:
    """Return F = {Q1*, Q2*} as tables of shape (2, S, A).

    A is only ever visited on the first step, B and C on the second, so one table of states serves
    both steps. The class is Bellman complete for M1 and for M2.
    """
    tables = []
    for variant in get_args(Variant):
        first, second = offline_hard_mdp(variant).optimal_q()
        tables.append([first[A], second[B], second[C]])
    return np.array(tables)
