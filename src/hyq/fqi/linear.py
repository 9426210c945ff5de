"""Linear classes F_h = {<w, phi(s, a)> : ||w|| <= B_W} (The Linear Bellman Completeness Model).

Least squares over the ball is solved exactly; finitely many actions are enumerated. Classes with
another maximum over actions (in closed form for quadratics, by a linear program over a polytope)
need only a `ValueFunction` of their own: tests/fqi/continuous_actions.py has these two.
"""

import math
from dataclasses import dataclass

import numpy as np

from hyq.core.settings import check_positive
from hyq.core.types import Array, FloatArray
from hyq.fqi.classes import DiscreteValueFunction, Regression

_NEWTON_STEPS = 200


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

    def fit(self, problem: Regression) -> LinearFunction:
        """Solve the norm-constrained least squares exactly."""
        features = problem.rows.observation[np.arange(len(problem.target)), problem.rows.action]
        w = ball_least_squares(features, problem.target, problem.weight, self.radius)
        return LinearFunction(w)
