"""Model-based hybrid RL: the iterative system identification of Ross and Bagnell (2012).

    for t = 1, 2, ...:
        act with the current policy and keep what happened
        for every h:  (P_h, r_h) <- best model of  1/2 offline (exploration) + 1/2 online data
        plan:         Q_h = r_h + P_h max_a Q_{h+1},   h = H-1, ..., 0;   act greedily on Q

It is Hy-Q's closest relative: the same two sources, weighed the same way, and the same reason for
both. The offline half keeps the model good where a good policy goes, the online half where the
current policy, misled by the model, goes. So it is `HyQ` with one of the classes below, whose fit
is a plan: `HyQ(TabularModel(5, 3), HyQConfig(collection="q-type"))`. What a plan expects of the
next state is kept inside `value_range`, [0, V_max], whatever the model says.
"""

import math
from dataclasses import dataclass

import numpy as np

from hyq.core.settings import check_positive
from hyq.core.types import Array, FloatArray, Transitions
from hyq.fqi.classes import Regression
from hyq.fqi.linear import LinearFunction
from hyq.fqi.tabular import TabularFunction


@dataclass(frozen=True)
class TabularModel:
    """P_h and r_h as tables: the weighted frequencies and means of the data.

    A pair (s, a) without data leads nowhere and pays nothing.
    """

    states: int
    actions: int
    value_range: tuple[float, float] = (0.0, 1.0)

    def zero(self) -> TabularFunction:
        """Return the table of zeros."""
        return TabularFunction(np.zeros((self.states, self.actions)))

    def identify(self, rows: Transitions, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P_h (S, A, S), less the weight of terminations, and r_h (S, A)."""
        shape = (self.states, self.actions, self.states)
        indices = (rows.observation, rows.action, rows.next_observation)

        def total(axes: int, weight: FloatArray) -> Array:
            """Add weights up over cells of the first axes."""
            cell = np.ravel_multi_index(indices[:axes], shape[:axes])
            return np.bincount(cell, weight, math.prod(shape[:axes])).reshape(shape[:axes])

        mass = total(2, weight)
        mass = np.where(mass > 0, mass, 1.0)
        transition = total(3, weight * rows.discount) / mass[..., None]
        return transition, total(2, weight * rows.reward) / mass

    def fit(self, problem: Regression) -> TabularFunction:
        """Back values up exactly through the fitted tables."""
        transition, reward = self.identify(problem.rows, problem.weight)
        if problem.next_function is not None:
            reward = reward + transition @ problem.next_function.best(np.arange(self.states))
        return TabularFunction(np.clip(reward, *self.value_range))


@dataclass(frozen=True)
class LinearModel:
    """P_h(s' | s, a) = <phi(s, a), mu_h(s')> and r_h(s, a) = <phi(s, a), theta_h>, by ridge
    regression. An observation is the matrix phi(s, .), and mu_h lives on the observed successors.
    """

    dimension: int
    ridge: float = 1e-6
    """Pull towards zero, in units of the total weight of the data, which is one."""
    value_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_positive(self, "ridge")  # so that the regression has one solution

    def zero(self) -> LinearFunction:
        """Return w = 0: with such a model every backup is linear."""
        return LinearFunction(np.zeros(self.dimension))

    def identify(self, rows: Transitions, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mu_h (d, n), one column for the successor of each row, and theta_h (d,)."""
        features = rows.observation[np.arange(len(rows)), rows.action]
        weighted = features * weight[:, None]
        gram = weighted.T @ features + self.ridge * np.eye(self.dimension)
        measure = np.linalg.solve(gram, weighted.T)
        return measure * rows.discount, measure @ rows.reward

    def fit(self, problem: Regression) -> LinearFunction:
        """Return the weights theta_h + mu_h V_{h+1}, V kept in range."""
        measure, reward = self.identify(problem.rows, problem.weight)
        if problem.next_function is None:
            return LinearFunction(reward)
        v_t = problem.next_function.best(problem.rows.next_observation)
        value = np.clip(v_t, *self.value_range)
        return LinearFunction(reward + measure @ value)
