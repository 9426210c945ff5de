"""Linear classes F_h = {<w, phi(s, a)> : ||w|| <= B_W} (The Linear Bellman Completeness Model).

Least squares over the ball is solved exactly, and the maximum over actions three ways: by
enumeration, by a linear program over a polytope of actions, and in closed form for quadratics.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from hyq.core.errors import HyqError
from hyq.core.settings import check_positive
from hyq.core.types import Array, FloatArray
from hyq.fqi.classes import DiscreteValueFunction, Regression, ValueFunction

_NEWTON_STEPS = 200
_DEFINITE = 1e-9
"""Curvature, relative to the largest coefficient, below which a quadratic counts as flat."""


def ball_least_squares(
    features: FloatArray, target: FloatArray, weight: FloatArray, radius: float
) -> FloatArray:
    """Return the minimiser of sum_i weight_i (<w, features_i> - target_i)^2 over ||w|| <= radius.

    Of several minimisers it is the shortest. With sqrt(weight) features = U diag(s) V' and the
    projected target c = U' sqrt(weight) target, the KKT conditions say that the solution is

        w(mu) = V (s c / (s^2 + mu)),   mu >= 0,   mu (||w(mu)|| - radius) = 0.

    If w(0) lies outside the ball, mu is the root of 1/||w(mu)|| = 1/radius: the left-hand side is
    concave and increasing, so Newton's method from mu = 0 climbs to the root without overshoot.
    """
    root = np.sqrt(weight)
    left, singular, right = np.linalg.svd(
        np.asarray(features, dtype=np.float64) * root[:, None], full_matrices=False
    )
    rounding = max(features.shape) * np.finfo(np.float64).eps
    seen = singular > rounding * singular[0]
    left, singular, right = left[:, seen], singular[seen], right[seen]
    coordinate = left.T @ (root * target)

    solution: FloatArray = coordinate / singular
    if np.linalg.norm(solution) <= radius:
        return np.asarray(solution @ right)
    mu = 0.0
    for _ in range(_NEWTON_STEPS):
        solution = singular * coordinate / (singular**2 + mu)
        length = np.linalg.norm(solution)
        derivative = solution @ (solution / (singular**2 + mu)) / length**2
        climbed = mu + float((length / radius - 1.0) / derivative)
        if climbed <= mu:
            break
        mu = climbed
    return np.asarray(solution * min(1.0, radius / float(np.linalg.norm(solution))) @ right)


@dataclass(frozen=True, eq=False)
class LinearFunction(DiscreteValueFunction):
    """f_h(s, a) = <weights, phi(s, a)>, where an observation is the matrix phi(s, .)."""

    weights: FloatArray
    """w, shape (d,)."""

    def values(self, observation: Array) -> FloatArray:
        """Multiply feature matrices of shape (n, A, d) by the weights."""
        return observation @ self.weights


@dataclass(frozen=True)
class LinearClass:
    """Linear functions of known features; finitely many actions are enumerated."""

    dimension: int
    radius: float = math.inf
    """B_W; infinite for no bound."""

    def __post_init__(self) -> None:
        check_positive(self, "radius")

    def zero(self) -> LinearFunction:
        """Return w = 0."""
        return LinearFunction(np.zeros(self.dimension))

    def fit(
        self, problem: Regression, start: LinearFunction, rng: np.random.Generator
    ) -> LinearFunction:
        """Solve the norm-constrained least squares exactly."""
        features = problem.observation[np.arange(len(problem.target)), problem.action]
        return LinearFunction(
            ball_least_squares(features, problem.target, problem.weight, self.radius)
        )


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

    def fit(
        self, problem: Regression, start: ConvexLinearFunction, rng: np.random.Generator
    ) -> ConvexLinearFunction:
        """Solve the norm-constrained least squares exactly."""
        features = np.einsum("nk,nkd->nd", problem.action, problem.observation)
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
    _feedback: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the greedy policy u = feedback x, where df/du = 0.

        Without strict concavity in u (as for f = 0) there is no unique maximiser, and doing
        nothing, u = 0, stands in for one.
        """
        n = self.state_dimension
        action_block = self.quadratic[n:, n:]
        flattest = np.linalg.eigvalsh(action_block).max()
        if flattest < -_DEFINITE * np.abs(self.quadratic).max():
            feedback = -np.linalg.solve(action_block, self.quadratic[n:, :n])
        else:
            feedback = np.zeros((len(action_block), n))
        object.__setattr__(self, "_feedback", feedback)

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

    def fit(
        self, problem: Regression, start: QuadraticFunction, rng: np.random.Generator
    ) -> QuadraticFunction:
        """Solve the norm-constrained least squares exactly."""
        z = np.concatenate([problem.observation, problem.action], axis=1)
        row, column = np.triu_indices(z.shape[1])
        features = np.column_stack([z[:, row] * z[:, column], np.ones(len(z))])
        weights = ball_least_squares(features, problem.target, problem.weight, self.radius)
        upper = np.zeros((z.shape[1], z.shape[1]))
        upper[row, column] = weights[:-1]
        return QuadraticFunction((upper + upper.T) / 2, weights[-1:], self.state_dimension)
