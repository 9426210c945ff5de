"""Classes and an environment with continuous actions: Hy-Q knows nothing but their maximum.

They are the paper's other examples of linear Bellman completeness: features whose {phi(s, a) : a}
is convex and compact, where a linear program finds the best action, and the quadratic functions of
a regulator, whose best action has a closed form.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from scipy import sparse
from scipy.optimize import linprog

from hyq.core.errors import HyqError
from hyq.core.settings import check_positive
from hyq.core.types import Array, FloatArray, IntArray
from hyq.envs.linear import LinearMDP, LinearMDPEnv, random_linear_mdp
from hyq.fqi.classes import Regression, ValueFunction
from hyq.fqi.linear import ball_least_squares

_DEFINITE = 1e-9
"""Curvature, relative to the largest coefficient, below which a quadratic counts as flat."""


@dataclass(frozen=True, eq=False)
class Polytope:
    """A bounded set of actions {a : G a <= g, E a = e}."""

    inequality: FloatArray
    """G, shape (p, k)."""
    inequality_bound: FloatArray
    """g, shape (p,)."""
    equality: FloatArray
    """E, shape (q, k)."""
    equality_bound: FloatArray
    """e, shape (q,)."""

    @classmethod
    def simplex(cls, size: int) -> Self:
        """Return the probability simplex {a >= 0, sum a = 1} in R^size."""
        return cls(-np.eye(size), np.zeros(size), np.ones((1, size)), np.ones(1))

    def maximise(self, objective: FloatArray) -> FloatArray:
        """Return argmax_a <objective_i, a> for each row, shape (n, k).

        The rows are independent, so their linear programs are stacked along the diagonal of one
        sparse program; equal rows are solved once.
        """
        if not len(objective):
            return objective
        rows, inverse = np.unique(objective, axis=0, return_inverse=True)
        scale = np.abs(rows).max(axis=1, keepdims=True)
        rows = rows / np.where(scale > 0, scale, 1.0)
        count = len(rows)
        result = linprog(
            -rows.ravel(),
            A_ub=_along_diagonal(self.inequality, count),
            b_ub=np.tile(self.inequality_bound, count),
            A_eq=_along_diagonal(self.equality, count),
            b_eq=np.tile(self.equality_bound, count),
            bounds=(None, None),
            method="highs-ds",
        )
        if not result.success:
            raise HyqError(f"the action polytope has no maximum: {result.message}")
        return np.asarray(result.x).reshape(rows.shape)[inverse.ravel()]


def _along_diagonal(block: FloatArray, count: int) -> Any:
    """Return the sparse matrix with `count` copies of `block` along its diagonal."""
    return sparse.kron(sparse.eye_array(count), block, format="csr")


@dataclass(frozen=True, eq=False)
class ConvexLinearFunction(ValueFunction):
    """f_h(s, a) = sum_i a_i <weights, phi(s, i)> for actions a in a polytope."""

    convex_weights: FloatArray
    """w, shape (d,), by a name that tells a saved function from a `LinearFunction`."""
    polytope: Polytope

    def at(self, observation: Array, action: Array) -> FloatArray:
        """Return f_h(s, a) for each row."""
        return (action * (observation @ self.convex_weights)).sum(axis=1)

    def greedy(self, observation: Array) -> Array:
        """Return argmax_a f_h(s, a) for each row, by linear programming."""
        return self.polytope.maximise(observation @ self.convex_weights)


@dataclass(frozen=True)
class ConvexLinearClass:
    """Linear functions whose set {phi(s, a) : a} is convex and compact."""

    dimension: int
    polytope: Polytope
    radius: float = math.inf
    """B_W; infinite for no bound."""

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def zero(self) -> ConvexLinearFunction:
        """Return w = 0."""
        return ConvexLinearFunction(np.zeros(self.dimension), self.polytope)

    def fit(self, problem: Regression) -> ConvexLinearFunction:
        """Solve the norm-constrained least squares exactly."""
        features = np.einsum("nk,nkd->nd", problem.rows.action, problem.rows.observation)
        return ConvexLinearFunction(
            ball_least_squares(features, problem.target, problem.weight, self.radius),
            self.polytope,
        )


@dataclass(frozen=True, eq=False)
class QuadraticFunction(ValueFunction):
    """f_h(x, u) = z' quadratic z + constant with z = (x, u)."""

    quadratic: FloatArray
    """Symmetric, shape (n + m, n + m)."""
    constant: FloatArray
    """Shape (1,)."""
    state_dimension: int

    @cached_property
    def _feedback(self) -> FloatArray:
        """The greedy policy is u = feedback x, where df/du = 0.

        Without strict concavity in u (as for f = 0) there is no unique maximiser, and doing
        nothing, u = 0, stands in for one.
        """
        n = self.state_dimension
        action_block = self.quadratic[n:, n:]
        flattest = np.linalg.eigvalsh(action_block).max()
        if flattest < -_DEFINITE * np.abs(self.quadratic).max():
            return -np.linalg.solve(action_block, self.quadratic[n:, :n])
        return np.zeros((len(action_block), n))

    def at(self, observation: Array, action: Array) -> FloatArray:
        """Return f_h(x, u) for each row."""
        z = np.concatenate([observation, action], axis=1)
        return ((z @ self.quadratic) * z).sum(axis=1) + self.constant

    def greedy(self, observation: Array) -> Array:
        """Return argmax_u f_h(x, u) for each row."""
        return observation @ self._feedback.T


@dataclass(frozen=True)
class QuadraticClass:
    """Linear functions of the monomials z_i z_j (i <= j) of z = (x, u), and of 1: LQR's class."""

    state_dimension: int
    action_dimension: int
    radius: float = math.inf
    """B_W, a bound on the coefficients of the monomials."""

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def zero(self) -> QuadraticFunction:
        """Return f = 0."""
        size = self.state_dimension + self.action_dimension
        return QuadraticFunction(np.zeros((size, size)), np.zeros(1), self.state_dimension)

    def fit(self, problem: Regression) -> QuadraticFunction:
        """Solve the norm-constrained least squares exactly."""
        z = np.concatenate([problem.rows.observation, problem.rows.action], axis=1)
        row, column = np.triu_indices(z.shape[1])
        features = np.column_stack([z[:, row] * z[:, column], np.ones(len(z))])
        weights = ball_least_squares(features, problem.target, problem.weight, self.radius)
        upper = np.zeros((z.shape[1], z.shape[1]))
        upper[row, column] = weights[:-1]
        return QuadraticFunction((upper + upper.T) / 2, weights[-1:], self.state_dimension)


class ConvexLinearMDPEnv(LinearMDPEnv):
    """Copies of a linear MDP whose actions are mixtures: {phi(s, a)} is convex and compact.

    An action is a point a of the simplex over `linear`'s k actions, and phi(s, a) =
    sum_i a_i phi(s, i). A vector off the simplex is played as its nearest point on it. Since Q* is
    linear in a, some vertex is always optimal: `mdp`, whose actions are the vertices, has the same
    optimal value.
    """

    def __init__(self, num_envs: int, linear: LinearMDP) -> None:
        super().__init__(num_envs, linear)
        self.single_action_space = gym.spaces.Box(0.0, 1.0, (linear.mdp.actions,), np.float64)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _advance(self, state: Array, action: Array, h: IntArray) -> tuple[Array, FloatArray]:
        mixture = project_to_simplex(action)
        draw = self.np_random.random((len(mixture), 1))
        vertex: IntArray = (np.cumsum(mixture[:, :-1], axis=-1) <= draw).sum(axis=-1)
        next_state, _ = super()._advance(state, vertex, h)
        return next_state, (mixture * self.mdp.reward[h, state]).sum(axis=-1)


def project_to_simplex(points: FloatArray) -> FloatArray:
    """Return the nearest point of the probability simplex to each row (Euclidean distance)."""
    descending = -np.sort(-points, axis=-1)
    excess = (np.cumsum(descending, axis=-1) - 1.0) / np.arange(1, points.shape[-1] + 1)
    support = (descending > excess).sum(axis=-1, keepdims=True)
    return np.maximum(points - np.take_along_axis(excess, support - 1, axis=-1), 0.0)


def make_convex_linear_mdp_vector(num_envs: int = 1, **settings: Any) -> ConvexLinearMDPEnv:
    """Simulate the same MDP as `make_linear_mdp_vector`, with mixtures of its actions allowed."""
    return ConvexLinearMDPEnv(num_envs, random_linear_mdp(**settings))
