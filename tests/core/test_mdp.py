from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray


def detour() -> FiniteMDP:
    """Two states, two steps. In state 0: stay for 0.1, or move to state 1 for 0.

    In state 1: action 0 pays 1 and goes to state 0 or 1 with equal chance; action 1 pays 0.5 and
    stays.
    """
    transition = np.zeros((2, 2, 2, 2))
    transition[:, 0, 0, 0] = 1.0
    transition[:, 0, 1, 1] = 1.0
    transition[:, 1, 0] = [0.5, 0.5]
    transition[:, 1, 1, 1] = 1.0
    reward = np.array([[[0.1, 0.0], [1.0, 0.5]]] * 2)
    return FiniteMDP(transition, reward, np.array([0.75, 0.25]))


def small_random(seed: int, states: int = 3, actions: int = 2, horizon: int = 3) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    return FiniteMDP.random(rng, states=states, actions=actions, horizon=horizon)


def random_policy(mdp: FiniteMDP, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(mdp.actions), size=(mdp.horizon, mdp.states))


def test_optimal_values_by_hand() -> None:
    mdp = detour()
    # Last step: take the larger reward. First step: stay gives 0.1 + 0.1, move gives 0 + 1;
    # gamble gives 1 + (0.1 + 1)/2, hold gives 0.5 + 1.
    np.testing.assert_allclose(mdp.optimal_q()[1], [[0.1, 0.0], [1.0, 0.5]])
    np.testing.assert_allclose(mdp.optimal_q()[0], [[0.2, 1.0], [1.55, 1.5]])
    np.testing.assert_allclose(mdp.optimal_v(), [[1.0, 1.55], [0.1, 1.0], [0.0, 0.0]])
    assert mdp.optimal_value() == pytest.approx(0.75 * 1.0 + 0.25 * 1.55)


def test_policy_values_and_occupancy_by_hand() -> None:
    mdp = detour()
    policy = np.array([[[0.5, 0.5], [1.0, 0.0]]] * 2)
    occupancy = mdp.occupancy(policy)
    np.testing.assert_allclose(occupancy[0], [[0.375, 0.375], [0.25, 0.0]])
    # State 0 next: 0.375 + 0.25/2 = 0.5.
    np.testing.assert_allclose(occupancy[1], [[0.25, 0.25], [0.5, 0.0]])
    assert mdp.value(policy) == pytest.approx(0.0375 + 0.25 + 0.025 + 0.5)
    # Q^pi_0(0, move) = 0 + V^pi_1(1) = 1; Q^pi_0(0, stay) = 0.1 + V^pi_1(0) = 0.1 + 0.05.
    np.testing.assert_allclose(mdp.policy_q(policy)[0, 0], [0.15, 1.0])


def test_greedy_policy_breaks_ties_towards_the_lowest_action() -> None:
    q = np.array([[[0.0, 2.0, 2.0], [3.0, 3.0, 3.0]]])
    mdp = small_random(0, states=2, actions=3, horizon=1)
    np.testing.assert_array_equal(mdp.greedy_policy(q), [[[0, 1, 0], [1, 0, 0]]])


def test_the_uniform_policy_takes_every_action_alike() -> None:
    mdp = small_random(0, states=2, actions=4, horizon=3)
    np.testing.assert_array_equal(mdp.uniform_policy(), np.full((3, 2, 4), 0.25))


def test_bellman_backs_up_the_maximum_of_the_next_function() -> None:
    mdp = detour()
    f_next = np.array([[2.0, 4.0], [8.0, 6.0]])
    np.testing.assert_allclose(mdp.bellman(0, f_next), [[4.1, 8.0], [1.0 + 6.0, 8.5]])
    np.testing.assert_allclose(mdp.bellman(1, None), mdp.reward[1])


@pytest.mark.parametrize("seed", range(3))
def test_no_deterministic_policy_beats_the_optimum(seed: int) -> None:
    mdp = small_random(seed, states=2, actions=2, horizon=3)
    cells = mdp.horizon * mdp.states
    values = [
        mdp.value(np.eye(2)[np.reshape(choice, (mdp.horizon, mdp.states))])
        for choice in product(range(2), repeat=cells)
    ]
    assert mdp.optimal_value() == pytest.approx(max(values), abs=1e-12)
    assert min(values) < max(values)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_values_and_occupancies_tell_the_same_story(seed: int) -> None:
    mdp = small_random(seed, states=4, actions=3, horizon=4)
    policy = random_policy(mdp, seed + 1)
    occupancy = mdp.occupancy(policy)
    np.testing.assert_allclose(occupancy.sum(axis=(1, 2)), 1.0)
    value = mdp.value(policy)
    assert value == pytest.approx(float((occupancy * mdp.reward).sum()), abs=1e-12)
    assert 0.0 <= value <= mdp.optimal_value() + 1e-12 <= 1.0 + 1e-12
    greedy = mdp.greedy_policy(mdp.optimal_q())
    assert mdp.value(greedy) == pytest.approx(mdp.optimal_value(), abs=1e-12)
    # One step of policy improvement never hurts.
    improved = mdp.greedy_policy(mdp.policy_q(policy))
    assert mdp.value(improved) >= value - 1e-12


def test_the_same_seed_draws_the_same_mdp() -> None:
    np.testing.assert_array_equal(small_random(3).transition, small_random(3).transition)
    assert not np.array_equal(small_random(3).transition, small_random(4).transition)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": np.zeros((2, 2))}, "reward must have shape"),
        ({"transition": np.zeros((2, 2, 2, 3))}, "transition must have shape"),
        ({"initial": np.ones(3) / 3}, "initial must have shape"),
        ({"initial": np.array([0.5, 0.6])}, "initial must sum to one"),
        ({"initial": np.array([1.5, -0.5])}, "initial must hold"),
        ({"transition": np.full((2, 2, 2, 2), 0.4)}, "transition must sum to one"),
        ({"transition": np.full((2, 2, 2, 2), np.nan)}, "transition must hold"),
        ({"reward": np.full((2, 2, 2), np.inf)}, "reward must be finite"),
    ],
)
def test_malformed_arrays_raise(change: dict[str, FloatArray], message: str) -> None:
    good = detour()
    arrays = {"transition": good.transition, "reward": good.reward, "initial": good.initial}
    with pytest.raises(HyqError, match=message):
        FiniteMDP(**(arrays | change))


def test_malformed_policies_raise() -> None:
    mdp = detour()
    with pytest.raises(HyqError, match="a policy must have shape"):
        mdp.value(np.ones((2, 2)))
    with pytest.raises(HyqError, match="policy must sum to one"):
        mdp.occupancy(np.ones((2, 2, 2)))


def test_arrays_are_frozen_copies() -> None:
    reward = np.zeros((1, 1, 1))
    mdp = FiniteMDP(np.ones((1, 1, 1, 1)), reward, np.ones(1))
    reward[:] = 7.0
    assert mdp.reward[0, 0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        mdp.reward[:] = 1.0
