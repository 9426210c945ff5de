"""C_pi: closed forms against optimisation, the solver against brute force, and the edge cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray
from hyq.theory.assumptions import largest_returns
from hyq.theory.bounded import bounded_transfer, bounds_do_not_bind
from hyq.theory.transfer import (
    bellman_residuals,
    finite_transfer,
    inverse_norm,
    linear_transfer,
    tabular_transfer,
)
from tests.theory.instances import (
    Instance,
    enumerate_product,
    joint_transfer,
    random_instance,
    random_linear,
    random_product_class,
    seeds,
)


def ascend(instance: Instance, features: FloatArray | None, starts: int) -> float:
    """Maximise the ratio over f itself by L-BFGS from random starts, knowing nothing of g."""
    mdp = instance.mdp
    weight = np.sqrt(instance.nu)

    def negative(x: FloatArray) -> float:
        f = x.reshape(mdp.reward.shape) if features is None else _linear(features, x, mdp.horizon)
        g = bellman_residuals(mdp, f)
        return -float((instance.occupancy * g).sum()) / float(np.linalg.norm(weight * g) + 1e-12)

    size = mdp.reward.size if features is None else mdp.horizon * features.shape[-1]
    found = [
        minimize(negative, instance.rng.standard_normal(size), method="L-BFGS-B").fun
        for _ in range(starts)
    ]
    return -min(found)


def _linear(features: FloatArray, x: FloatArray, horizon: int) -> FloatArray:
    return np.einsum("hd,sad->hsa", x.reshape(horizon, -1), features)


@pytest.mark.parametrize("seed", range(12))
def test_tabular_closed_form_is_the_maximum_over_functions(seed: int) -> None:
    instance = random_instance(seed)
    nu = 0.5 * instance.nu + 0.5 / instance.mdp.reward[0].size
    full = Instance(instance.mdp, instance.policy, instance.occupancy, nu, instance.rng)
    closed = tabular_transfer(full.occupancy, nu)
    assert ascend(full, None, starts=4) == pytest.approx(closed, rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_linear_closed_form_is_the_maximum_over_functions(seed: int) -> None:
    linear, instance = random_linear(seed)
    nu = 0.5 * instance.nu + 0.5 / instance.mdp.reward[0].size
    full = Instance(instance.mdp, instance.policy, instance.occupancy, nu, instance.rng)
    closed = linear_transfer(linear.features, full.occupancy, nu)
    assert ascend(full, linear.features, starts=4) == pytest.approx(closed, rel=2e-3)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(seeds)
def test_the_solver_equals_brute_force_on_finite_classes(seed: int) -> None:
    instance = random_instance(seed)
    tables = random_product_class(instance, members=4)
    joint = bellman_residuals(instance.mdp, enumerate_product(tables))
    brute = joint_transfer(joint, instance.occupancy, instance.nu)
    solved = finite_transfer(instance.mdp, tables, instance.occupancy, instance.nu)
    assert solved == pytest.approx(brute, rel=1e-9)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(seeds)
def test_no_class_exceeds_the_class_of_all_functions(seed: int) -> None:
    instance = random_instance(seed)
    tables = random_product_class(instance, members=3)
    everything = tabular_transfer(instance.occupancy, instance.nu)
    assert everything >= math.sqrt(instance.mdp.horizon) * (1 - 1e-9)
    some = finite_transfer(instance.mdp, tables, instance.occupancy, instance.nu)
    assert some <= everything * (1 + 1e-9)


def test_an_unsupported_action_makes_it_infinite_only_if_the_policy_takes_it() -> None:
    d = np.array([[[0.5, 0.5, 0.0]]])
    assert tabular_transfer(d, np.array([[[1.0, 0.0, 0.0]]])) == math.inf
    assert tabular_transfer(d, np.array([[[0.5, 0.5, 0.0]]])) == 1.0
    assert tabular_transfer(d, np.array([[[0.25, 0.25, 0.5]]])) == pytest.approx(math.sqrt(2))


def test_a_singular_covariance_matters_only_if_the_mean_feature_leaves_its_range() -> None:
    features = np.array([[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]])
    first, mixed = np.array([[[1.0, 0.0, 0.0]]]), np.array([[[0.0, 0.0, 1.0]]])
    assert linear_transfer(features, first, first) == 1.0
    assert linear_transfer(features, mixed, first) == math.inf
    # Data on the mixture alone covers a policy whose mean feature is the mixture: C_pi asks for
    # average residuals only, where the relative condition number would be infinite.
    half = np.array([[[0.5, 0.5, 0.0]]])
    assert linear_transfer(features, half, mixed) == pytest.approx(1.0)
    assert inverse_norm(np.zeros(2), np.zeros((2, 2))) == 0.0


def test_the_maximum_with_zero_binds() -> None:
    """F = {f in [0, 1]} with R = 0: every residual T f - f is negative, so C_pi = 0."""
    mdp = FiniteMDP(np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1)), np.ones(1))
    d = np.ones((1, 1, 1))
    assert not bounds_do_not_bind(mdp, d, 1.0)
    assert bounded_transfer(mdp, d, d) == 0.0
    assert tabular_transfer(d, d) == 1.0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seeds)
def test_bounded_tables_have_the_closed_form_where_the_bounds_do_not_bind(seed: int) -> None:
    """Positive rewards: the programme over pieces finds what the closed form says."""
    rng = np.random.default_rng(seed)
    mdp = FiniteMDP.random(rng, states=2, actions=2, horizon=2)
    d = mdp.occupancy(rng.dirichlet(np.ones(2), size=(2, 2)))
    nu = rng.dirichlet(np.ones(4), size=2).reshape(d.shape)
    assert bounds_do_not_bind(mdp, d, 1.0)
    assert _over_pieces(mdp, d, nu) == pytest.approx(tabular_transfer(d, nu), rel=1e-4)


def _over_pieces(mdp: FiniteMDP, d: FloatArray, nu: FloatArray) -> float:
    """Solve on every piece, although the bounds do not bind: V_max is just large enough."""
    return bounded_transfer(mdp, d, nu, v_max=mdp.optimal_q().max() * (1 - 1e-12))


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_bounded_tables_where_the_bounds_bind(seed: int, by_step: bool) -> None:
    """No member of the class does better than the solver says, and some nearly as well."""
    rng = np.random.default_rng(seed)
    base = FiniteMDP.random(rng, states=2, actions=2, horizon=2)
    reward = np.where(rng.random(base.reward.shape) < 0.5, 0.0, base.reward)
    reward[1] = 0.0
    mdp = FiniteMDP(base.transition, reward, base.initial)
    d = mdp.occupancy(rng.dirichlet(np.ones(2), size=(2, 2)))
    nu = rng.dirichlet(np.full(4, 2.0), size=2).reshape(d.shape)
    top = largest_returns(mdp, mdp.reward + 0.1) if by_step else np.ones(d.shape)
    assert not bounds_do_not_bind(mdp, d, top)
    exact = bounded_transfer(mdp, d, nu, top if by_step else 1.0)
    assert exact <= tabular_transfer(d, nu) * (1 + 1e-6)

    def negative(x: FloatArray) -> float:
        g = bellman_residuals(mdp, x.reshape(d.shape))
        return -float((d * g).sum()) / math.sqrt(float((nu * g**2).sum()) + 1e-14)

    starts = [mdp.optimal_q().ravel() * 0.9 + 0.1 * rng.random(d.size) for _ in range(40)]
    bounds = [(0.0, value) for value in top.ravel()]
    found = [minimize(negative, x, method="L-BFGS-B", bounds=bounds) for x in starts]
    best = max(0.0, -min(float(result.fun) for result in found))
    assert best <= exact * (1 + 1e-5) + 1e-7
    assert best >= 0.9 * exact


def test_mistakes_are_named() -> None:
    d = np.ones((1, 1, 1))
    with pytest.raises(HyqError, match="shape"):
        tabular_transfer(d, np.ones((2, 1, 1)))
    with pytest.raises(HyqError, match="distribution"):
        tabular_transfer(d, 0.5 * d)
    mdp = FiniteMDP.random(np.random.default_rng(0), states=4, actions=4, horizon=5)
    with pytest.raises(HyqError, match="cover"):
        bellman_residuals(mdp, np.zeros((2, 2, 2)))
    silent = FiniteMDP(mdp.transition, np.zeros_like(mdp.reward), mdp.initial)
    with pytest.raises(HyqError, match="too many"):
        bounded_transfer(silent, silent.occupancy(silent.uniform_policy()), _uniform(silent))


def _uniform(mdp: FiniteMDP) -> FloatArray:
    return np.full(mdp.reward.shape, 1.0 / mdp.reward[0].size)


def test_a_function_that_gains_without_a_residual_on_the_data_makes_it_infinite() -> None:
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[1.0, 0.5]]]), np.ones(1))
    d, nu = np.array([[[1.0, 0.0]]]), np.array([[[0.0, 1.0]]])
    right_on_the_data = np.array([[[[0.0, 0.5]]]])
    assert finite_transfer(mdp, right_on_the_data, d, nu) == math.inf
    # Where no function is free, gains are paid for: g = (1, 0.5) over ||g||_nu = 0.5.
    assert finite_transfer(mdp, np.zeros((1, 1, 1, 2)), d, nu) == pytest.approx(2.0)
