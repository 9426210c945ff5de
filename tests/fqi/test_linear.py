import math
from itertools import combinations
from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray
from hyq.envs.lqr import make_lqr_vector
from hyq.fqi.linear import LinearClass, LinearFunction, ball_least_squares
from tests.fqi.conformance import regression
from tests.fqi.continuous_actions import (
    ConvexLinearClass,
    Polytope,
    QuadraticClass,
    QuadraticFunction,
)


def box(low: FloatArray, high: FloatArray) -> Polytope:
    """Return {low <= a <= high}."""
    identity = np.eye(len(low))
    inequality = np.concatenate([identity, -identity])
    bounds = np.concatenate([high, -low])
    return Polytope(inequality, bounds, np.zeros((0, len(low))), np.zeros(0))


def random_problem(
    seed: int, rows: int, dimension: int, rank: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return features of the given rank, targets and weights (some of them zero)."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, dimension))
    weight = rng.uniform(size=rows) * (rng.uniform(size=rows) > 0.2)
    weight[0] = 1.0
    return features, 3 * rng.normal(size=rows), weight / weight.sum()


def loss(w: FloatArray, features: FloatArray, target: FloatArray, weight: FloatArray) -> float:
    return float(weight @ (features @ w - target) ** 2)


def clarabel(
    features: FloatArray, target: FloatArray, weight: FloatArray, radius: float
) -> tuple[FloatArray, float]:
    """Return the minimiser and the minimum that an interior-point solver finds."""
    cp: Any = cvxpy
    w = cp.Variable(features.shape[1])
    residual = cp.multiply(np.sqrt(weight), features @ w - target)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(residual)), [cp.norm(w) <= radius])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return np.asarray(w.value), float(problem.value)


@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("radius", [0.1, 0.6, 50.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_solver_agrees_with_clarabel(seed: int, radius: float, rank: int) -> None:
    features, target, weight = random_problem(seed, rows=30, dimension=4, rank=rank)
    w = ball_least_squares(features, target, weight, radius)
    expected, optimum = clarabel(features, target, weight, radius)
    assert loss(w, features, target, weight) == pytest.approx(optimum, abs=1e-6)
    length = float(np.linalg.norm(w))
    assert length <= radius * (1 + 1e-12)
    if rank == 4 or length > radius * (1 - 1e-9):  # otherwise the minimiser is not unique
        # A loss within 1e-9 of the optimum only fixes the minimiser to the root of that.
        np.testing.assert_allclose(w, expected, atol=1e-4 * max(1.0, radius))


@given(
    seed=st.integers(0, 10_000),
    rank=st.integers(1, 5),
    rows=st.integers(1, 40),
    radius=st.sampled_from([1e-3, 0.3, 1.0, 10.0, math.inf]),
)
@settings(max_examples=150, deadline=None)
def test_the_kkt_conditions_hold(seed: int, rank: int, rows: int, radius: float) -> None:
    features, target, weight = random_problem(seed, rows=rows, dimension=5, rank=rank)
    w = ball_least_squares(features, target, weight, radius)
    gradient = features.T @ (weight * (features @ w - target))
    scale = np.abs(features.T @ (weight * target)).max()
    length = float(np.linalg.norm(w))
    assert length <= radius * (1 + 1e-12)
    if length < radius * (1 - 1e-12):  # interior: the gradient vanishes
        np.testing.assert_allclose(gradient / scale, 0.0, atol=1e-10)
    else:  # on the sphere: the gradient points inwards along w
        multiplier = -(gradient @ w) / length**2
        assert multiplier >= 0.0
        np.testing.assert_allclose((gradient + multiplier * w) / scale, 0.0, atol=1e-10)


def test_of_many_minimisers_it_returns_the_shortest() -> None:
    features = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    w = ball_least_squares(features, np.array([1.0, 2.0]), np.full(2, 0.5), math.inf)
    np.testing.assert_allclose(w, [0.5, 0.5, 0.0], atol=1e-12)


def test_the_active_constraint_by_hand() -> None:
    # Features e_1 and e_2, targets 3 and 4, equal weights: the ball only shortens (3, 4).
    w = ball_least_squares(np.eye(2), np.array([3.0, 4.0]), np.full(2, 0.5), 1.0)
    np.testing.assert_allclose(w, [0.6, 0.8], atol=1e-14)


def test_features_of_zero_give_weights_of_zero() -> None:
    np.testing.assert_array_equal(
        ball_least_squares(np.zeros((3, 2)), np.ones(3), np.full(3, 1 / 3), 1.0), np.zeros(2)
    )


def test_the_linear_class_recovers_its_own_members() -> None:
    rng = np.random.default_rng(0)
    family, truth = LinearClass(3, radius=2.0), LinearFunction(np.array([1.0, -0.5, 0.25]))
    observation = rng.uniform(size=(50, 4, 3))
    action = rng.integers(4, size=50)
    problem = regression(observation, action, truth.at(observation, action), np.full(50, 0.02))
    fitted = family.fit(problem)
    np.testing.assert_allclose(fitted.weights, truth.weights, atol=1e-10)
    np.testing.assert_allclose(fitted.best(observation), (observation @ truth.weights).max(axis=1))
    rebuilt = family.zero().with_arrays(fitted.arrays())
    np.testing.assert_array_equal(rebuilt.values(observation), fitted.values(observation))
    assert not family.zero().values(observation).any()


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan])
def test_an_empty_ball_raises(radius: float) -> None:
    for build in (
        lambda: LinearClass(2, radius),
        lambda: ConvexLinearClass(2, Polytope.simplex(2), radius),
        lambda: QuadraticClass(1, 1, radius),
    ):
        with pytest.raises(HyqError, match="radius"):
            build()


def vertices(polytope: Polytope) -> FloatArray:
    """Enumerate the vertices: feasible points where k independent constraints are tight."""
    k = polytope.inequality.shape[1]
    found = []
    free = k - len(polytope.equality)
    for tight in combinations(range(len(polytope.inequality)), free):
        matrix = np.concatenate([polytope.equality, polytope.inequality[list(tight)]])
        bound = np.concatenate([polytope.equality_bound, polytope.inequality_bound[list(tight)]])
        if abs(np.linalg.det(matrix)) > 1e-9:
            point = np.linalg.solve(matrix, bound)
            if (polytope.inequality @ point <= polytope.inequality_bound + 1e-9).all():
                found.append(point)
    return np.array(found)


def random_polytope(seed: int) -> Polytope:
    """Cut a box in R^3 by random half-spaces and one plane, all around the origin."""
    rng = np.random.default_rng(seed)
    cube = box(-np.ones(3), np.ones(3))
    return Polytope(
        np.concatenate([cube.inequality, rng.normal(size=(4, 3))]),
        np.concatenate([cube.inequality_bound, np.full(4, 0.7)]),
        rng.normal(size=(1, 3)),
        np.zeros(1),
    )


@pytest.mark.parametrize(
    "polytope",
    [
        Polytope.simplex(4),
        box(np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 3.0])),
        *(random_polytope(seed) for seed in range(5)),
    ],
)
def test_the_linear_program_equals_vertex_enumeration(polytope: Polytope) -> None:
    corners = vertices(polytope)
    objective = np.random.default_rng(1).normal(size=(40, corners.shape[1]))
    objective *= np.logspace(-12, 3, 40)[:, None]
    solution = polytope.maximise(objective)
    assert (polytope.inequality @ solution.T <= polytope.inequality_bound[:, None] + 1e-7).all()
    np.testing.assert_allclose(
        polytope.equality @ solution.T, polytope.equality_bound[:, None] + np.zeros(40), atol=1e-7
    )
    best = (objective @ corners.T).max(axis=1)
    np.testing.assert_allclose((objective * solution).sum(axis=1), best, rtol=1e-6)


def test_simplex_maximisers_are_vertices_and_repeated_rows_agree() -> None:
    objective = np.array([[1.0, 3.0, 2.0], [5.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    np.testing.assert_allclose(
        Polytope.simplex(3).maximise(objective), np.eye(3)[[1, 0, 1]], atol=1e-9
    )


def test_a_polytope_without_points_raises() -> None:
    empty = Polytope(np.eye(1), np.array([-1.0]), np.eye(1), np.array([0.0]))
    with pytest.raises(HyqError, match="polytope has no maximum"):
        empty.maximise(np.ones((1, 1)))


def test_the_convex_class_fits_mixtures_and_maximises_over_them() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([0.3, -0.2, 0.9])
    family = ConvexLinearClass(3, Polytope.simplex(4), radius=2.0)
    observation, action = rng.uniform(size=(40, 4, 3)), rng.dirichlet(np.ones(4), size=40)
    target = np.array([a @ phi @ weights for a, phi in zip(action, observation, strict=True)])
    fitted = family.fit(regression(observation, action, target, np.full(40, 1 / 40)))
    np.testing.assert_allclose(fitted.convex_weights, weights, atol=1e-10)
    np.testing.assert_allclose(fitted.at(observation, action), target)
    np.testing.assert_allclose(fitted.best(observation), (observation @ weights).max(axis=1))
    np.testing.assert_array_equal(
        family.zero().with_arrays(fitted.arrays()).convex_weights, fitted.convex_weights
    )
    np.testing.assert_allclose(family.zero().greedy(observation).sum(axis=1), 1.0)


def test_a_quadratic_is_maximised_in_closed_form() -> None:
    # f = 4xu - 2u^2 + 3 is largest at u = x, where it is 2x^2 + 3.
    f = QuadraticFunction(np.array([[0.0, 2.0], [2.0, -2.0]]), np.array([3.0]), state_dimension=1)
    x = np.array([[1.0], [-2.0]])
    np.testing.assert_allclose(f.greedy(x), x)
    np.testing.assert_allclose(f.best(x), [5.0, 11.0])
    np.testing.assert_allclose(f.at(x, np.zeros((2, 1))), [3.0, 3.0])


@pytest.mark.parametrize("curvature", [0.0, 1.0])
def test_without_concavity_the_action_is_zero(curvature: float) -> None:
    f = QuadraticFunction(np.array([[0.0, 1.0], [1.0, curvature]]), np.zeros(1), state_dimension=1)
    np.testing.assert_array_equal(f.greedy(np.array([[3.0]])), [[0.0]])
    zero = QuadraticClass(2, 1).zero()
    np.testing.assert_array_equal(zero.best(np.ones((4, 2))), np.zeros(4))
    np.testing.assert_array_equal(zero.greedy(np.ones((4, 2))), np.zeros((4, 1)))


def test_the_quadratic_class_recovers_the_regulators_q_function() -> None:
    system = make_lqr_vector(1).system
    riccati = system.riccati()
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(80, 3)), rng.normal(size=(80, 2))
    after = x @ system.dynamics.T + u @ system.control.T
    # Q*_0(x, u) = -(x'Qx + u'Ru) - E[x1' P_1 x1] - c_1 with the noise averaged out.
    target = -((x**2).sum(axis=1) + (u**2).sum(axis=1))
    target -= np.einsum("ni,ij,nj->n", after, riccati.cost[1], after) + riccati.constant[0]
    family = QuadraticClass(3, 2)
    fitted = family.fit(regression(x, u, target, np.full(80, 1 / 80)))
    np.testing.assert_allclose(fitted.at(x, u), target, atol=1e-9)
    np.testing.assert_allclose(fitted.greedy(x), -x @ riccati.gain[0].T, atol=1e-9)
    value = -np.einsum("ni,ij,nj->n", x, riccati.cost[0], x) - riccati.constant[0]
    np.testing.assert_allclose(fitted.best(x), value, atol=1e-9)
    rebuilt = family.zero().with_arrays(fitted.arrays())
    np.testing.assert_array_equal(rebuilt.best(x), fitted.best(x))


def test_the_quadratic_class_keeps_its_coefficients_in_the_ball() -> None:
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(30, 1)), rng.normal(size=(30, 1))
    problem = regression(x, u, -10 * u[:, 0] ** 2, np.full(30, 1 / 30))
    family = QuadraticClass(1, 1, radius=0.5)
    f = family.fit(problem)
    (xx, xu), (_, uu) = f.quadratic
    assert np.linalg.norm([xx, 2 * xu, uu, *f.constant]) == pytest.approx(0.5)
