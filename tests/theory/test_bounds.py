"""Every corrected inequality on random problems, and how near to equality each one comes."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.theory.bounds import (
    condition_numbers,
    finite_bounds,
    linear_bounds,
    low_rank_bounds,
    tabular_bounds,
)
from hyq.theory.transfer import bellman_residuals, relative_spectrum, tabular_transfer
from tests.theory.instances import (
    enumerate_product,
    random_instance,
    random_linear,
    random_policy,
    random_product_class,
    seeds,
)

MANY = settings(max_examples=250, deadline=None, derandomize=True)


def never_decreases(chain: tuple[float, ...]) -> bool:
    return all(a <= b * (1 + 1e-7) + 1e-9 for a, b in pairwise(chain))


@MANY
@given(seeds)
def test_the_chain_for_all_functions(seed: int) -> None:
    instance = random_instance(seed)
    bounds = tabular_bounds(instance.occupancy, instance.nu)
    assert bounds.density >= 1 - 1e-9
    assert never_decreases(bounds.corrected())
    assert never_decreases(bounds.corrected_jointly())


@MANY
@given(seeds)
def test_the_chain_for_linear_functions(seed: int) -> None:
    linear, instance = random_linear(seed)
    bounds = linear_bounds(linear.features, instance.occupancy, instance.nu)
    numbers = condition_numbers(linear.features, instance.occupancy, instance.nu)
    assert never_decreases(bounds.corrected())
    assert never_decreases(bounds.corrected_jointly())
    assert never_decreases((*bounds.corrected()[:2], numbers.tight(), numbers.bound()))
    assert never_decreases((bounds.corrected()[2], numbers.bound()))
    assert (numbers.largest <= numbers.trace * (1 + 1e-9)).all()


@MANY
@given(seeds)
def test_the_chain_for_finite_classes(seed: int) -> None:
    instance = random_instance(seed)
    tables = random_product_class(instance, members=3)
    bounds = finite_bounds(instance.mdp, tables, instance.occupancy, instance.nu)
    assert never_decreases(bounds.corrected())
    assert never_decreases(bounds.corrected_jointly())
    g = bellman_residuals(instance.mdp, enumerate_product(tables))
    cost = np.einsum("hsa,khsa->k", instance.nu, g**2)
    square = np.einsum("hsa,khsa->k", instance.occupancy, g**2)
    some = cost > 1e-12
    if math.isfinite(bounds.squared_sum):
        brute = float((square[some] / cost[some]).max(initial=0.0))
        assert bounds.squared_sum == pytest.approx(brute, rel=1e-9)
    for h, ratio in enumerate(bounds.step_ratios):
        cost = np.einsum("sa,ksa->k", instance.nu[h], g[:, h] ** 2)
        square = np.einsum("sa,ksa->k", instance.occupancy[h], g[:, h] ** 2)
        some = cost > 1e-12
        if math.isfinite(ratio):
            brute = float((square[some] / cost[some]).max(initial=0.0))
            assert ratio == pytest.approx(brute, rel=1e-9)


@MANY
@given(seeds)
def test_the_low_rank_bound_for_any_class(seed: int) -> None:
    """Data from trajectories of another policy; the class is that of all functions."""
    linear, instance = random_linear(seed)
    mdp = linear.mdp
    behaviour = 0.9 * random_policy(mdp, instance.rng) + 0.1 * mdp.uniform_policy()
    nu = mdp.occupancy(behaviour)
    bounds = low_rank_bounds(mdp, linear.features, instance.policy, nu)
    transfer = tabular_transfer(instance.occupancy, nu)
    assert never_decreases((transfer, bounds.tight, bounds.summed, bounds.printed))


def test_each_bound_is_attained_somewhere() -> None:
    """A bound that is never close would be a sign of a mistake."""
    d = np.zeros((3, 1, 4))
    d[:, 0, :2] = 0.5
    half = np.full((3, 1, 4), 0.25)
    chain = tabular_bounds(d, half).corrected()
    assert chain[0] == pytest.approx(chain[3])  # nu = d / 2 where d > 0: all but the last
    assert tabular_bounds(d, d).corrected() == pytest.approx((math.sqrt(3),) * 5)
    one = np.ones((1, 4, 1))
    numbers = condition_numbers(one, d, half)
    assert linear_bounds(one, d, half).transfer == pytest.approx(numbers.tight())
    assert linear_bounds(one, d, half).transfer == pytest.approx(numbers.bound())
    # Data that is worse at one step only: adding the steps up is exact, the worst step is not.
    uneven = np.concatenate([half[:1], d[:2]])
    chain = tabular_bounds(d, uneven).corrected()
    assert chain[:3] == pytest.approx((2.0, 2.0, math.sqrt(6)))
    two = np.array([[[1.0], [1.0], [2.0], [2.0]]])  # nu = d but for the first step
    numbers = condition_numbers(two, d, uneven)
    assert numbers.tight() < 0.95 * numbers.bound()
    mdp = FiniteMDP(np.ones((3, 1, 4, 1)), np.zeros((3, 1, 4)), np.ones(1))
    bounds = low_rank_bounds(mdp, one, d, half)
    assert bounds.alpha == 2.0
    assert bounds.tight == pytest.approx(tabular_transfer(d, half))
    first = FiniteMDP(np.ones((1, 1, 4, 1)), np.zeros((1, 1, 4)), np.ones(1))
    bounds = low_rank_bounds(first, one, d[:1], half[:1])
    assert bounds.summed == pytest.approx(tabular_transfer(d[:1], half[:1]))


def test_how_close_the_finite_chain_comes_on_random_classes() -> None:
    """With pi's own data and residuals that hardly differ, every link is nearly an equality."""
    mdp = FiniteMDP(np.ones((4, 1, 1, 1)), np.zeros((4, 1, 1)), np.ones(1))
    tables = -np.arange(4, 0, -1.0).reshape(4, 1, 1, 1)
    d = np.ones((4, 1, 1))
    assert finite_bounds(mdp, tables, d, d).corrected() == pytest.approx((2.0,) * 5)


def test_features_may_cover_what_densities_do_not() -> None:
    """Remark on the relative condition number: bounded although a density ratio is infinite."""
    features = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    d, nu = np.array([[[1.0, 0.0, 0.0]]]), np.array([[[0.0, 0.5, 0.5]]])
    bounds = linear_bounds(features, d, nu)
    assert bounds.density == math.inf
    assert bounds.transfer == pytest.approx(math.sqrt(2))
    assert condition_numbers(features, d, nu).bound() == pytest.approx(math.sqrt(2))


def test_unseen_directions_are_infinite() -> None:
    assert relative_spectrum(np.eye(2), np.diag([1.0, 0.0])).tolist() == [math.inf]
    seen = relative_spectrum(np.diag([1.0, 0.0]), np.diag([0.5, 0.0]))
    np.testing.assert_allclose(seen, [2.0])


def test_the_low_rank_bound_needs_features_that_factorise() -> None:
    """Two states that remember the action, phi = 1: the bound would be 14.1, and C_pi is 17.3."""
    transition = np.zeros((2, 2, 2, 2))
    transition[:, :, [0, 1], [0, 1]] = 1.0
    mdp = FiniteMDP(transition, np.zeros((2, 2, 2)), np.array([1.0, 0.0]))
    policy = np.broadcast_to(np.array([1.0, 0.0]), (2, 2, 2))
    nu = mdp.occupancy(0.1 * policy + 0.9 * policy[..., ::-1])
    with pytest.raises(HyqError, match="factorise"):
        low_rank_bounds(mdp, np.ones((2, 2, 1)), policy, nu)
    right = np.tile(np.eye(2), (2, 1, 1))
    bounds = low_rank_bounds(mdp, right, policy, nu)
    assert tabular_transfer(mdp.occupancy(policy), nu) <= bounds.tight
    # The transitions of the last step lead nowhere, and need not factorise.
    last = FiniteMDP(transition[:1], np.zeros((1, 2, 2)), np.array([1.0, 0.0]))
    assert low_rank_bounds(last, np.ones((2, 2, 1)), policy[:1], nu[:1]).alpha == pytest.approx(10)


def test_the_low_rank_bound_needs_data_of_some_policy() -> None:
    linear, instance = random_linear(3)
    nu = np.full_like(instance.nu, 1.0 / instance.nu[0].size)
    with pytest.raises(HyqError, match="trajectories"):
        low_rank_bounds(linear.mdp, linear.features, instance.policy, nu)
