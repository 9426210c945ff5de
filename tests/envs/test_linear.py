import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyq.core.errors import HyqError
from hyq.envs.linear import LinearMDP, make_linear_mdp_vector, random_linear_mdp
from tests.fqi.continuous_actions import make_convex_linear_mdp_vector, project_to_simplex

COPIES = 20_000


def test_every_bellman_backup_is_linear_in_the_features() -> None:
    linear = random_linear_mdp(states=8, actions=3, dimension=3, horizon=4, instance_seed=0)
    phi = linear.features.reshape(-1, 3)
    assert np.linalg.norm(phi, axis=1).max() <= 1.0 + 1e-12
    f_next = np.random.default_rng(0).uniform(size=(8, 3))
    for h in range(4):
        backup = linear.mdp.bellman(h, f_next).ravel()
        weights, *_ = np.linalg.lstsq(phi, backup)
        np.testing.assert_allclose(phi @ weights, backup, atol=1e-12)


def test_the_weights_of_optimal_values_stay_inside_the_weight_ball() -> None:
    linear = random_linear_mdp(states=8, actions=3, dimension=3, horizon=4, instance_seed=0)
    assert linear.weight_bound == pytest.approx(3**0.5)
    optimal = linear.optimal_weights()
    np.testing.assert_allclose(
        np.einsum("sad,hd->hsa", linear.features, optimal), linear.mdp.optimal_q(), atol=1e-12
    )
    assert np.linalg.norm(optimal, axis=1).max() <= linear.weight_bound


def test_observations_are_feature_matrices_and_pay_linear_rewards() -> None:
    env = make_linear_mdp_vector(50, states=6, actions=3, dimension=4, horizon=3)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (50, 3, 4)
    rng = np.random.default_rng(0)
    for h in range(3):
        action = rng.integers(3, size=50)
        expected = observation[np.arange(50), action] @ env.linear.reward_weights[h]
        observation, reward, *_ = env.step(action)
        np.testing.assert_allclose(reward, expected)


def test_a_mixed_action_moves_as_the_mixture_of_its_vertices() -> None:
    env = make_convex_linear_mdp_vector(COPIES, states=5, actions=3, dimension=3, horizon=1)
    observation, _ = env.reset(seed=0)
    features = env.linear.features
    state = np.argmin(np.abs(observation[:, None] - features[None]).sum(axis=(2, 3)), axis=1)
    mixture = np.array([0.2, 0.3, 0.5])
    after, reward, *_ = env.step(np.tile(mixture, (COPIES, 1)))
    expected = mixture @ env.mdp.reward[0, state].T
    np.testing.assert_allclose(reward, expected)
    law = env.mdp.initial @ (mixture @ env.mdp.transition[0])
    reached = np.argmin(np.abs(after[:, None] - features[None]).sum(axis=(2, 3)), axis=1)
    frequency = np.bincount(reached, minlength=5) / COPIES
    np.testing.assert_allclose(frequency, law, atol=5 * 0.5 / COPIES**0.5)


def test_an_action_off_the_simplex_is_played_as_its_nearest_point() -> None:
    rewards = []
    for action in ([1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]):
        env = make_convex_linear_mdp_vector(5, states=5, actions=3, dimension=3, horizon=1)
        env.reset(seed=0)
        rewards.append(env.step(np.tile(action, (5, 1)))[1])
    np.testing.assert_allclose(rewards[0], rewards[1])
    assert not np.allclose(rewards[0], rewards[2])


def test_vertices_play_the_discrete_mdp() -> None:
    discrete = make_linear_mdp_vector(COPIES, horizon=2)
    convex = make_convex_linear_mdp_vector(COPIES, horizon=2)
    np.testing.assert_array_equal(discrete.mdp.transition, convex.mdp.transition)
    values = []
    for env, actions in (
        (discrete, np.arange(COPIES) % 4),
        (convex, np.eye(4)[np.arange(COPIES) % 4]),
    ):
        env.reset(seed=1)
        _, first, *_ = env.step(actions)
        _, second, *_ = env.step(actions)
        values.append((first + second).mean())
    policies = np.eye(4)[:, None, None].repeat(2, axis=1).repeat(10, axis=2)
    exact = np.mean([discrete.mdp.value(policy) for policy in policies])
    assert values == pytest.approx([exact, exact], abs=0.005)


@given(
    st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_the_projection_is_the_nearest_point_of_the_simplex(
    point: list[float], other: list[float]
) -> None:
    x, y = np.array([point]), np.array([other]) / np.sum(other)
    projected = project_to_simplex(x)
    assert projected.min() >= 0.0
    assert projected.sum() == pytest.approx(1.0)
    # Nearest point of a convex set: no other point of it lies on the far side of the plane.
    assert ((x - projected) * (y - projected)).sum() <= 1e-9
    np.testing.assert_allclose(project_to_simplex(y), y, atol=1e-12)


def test_malformed_factors_raise() -> None:
    good = random_linear_mdp(states=3, actions=2, dimension=2, horizon=2, instance_seed=0)
    with pytest.raises(HyqError, match="features must sum to one"):
        LinearMDP(2 * good.features, good.measures, good.reward_weights, good.initial)
    with pytest.raises(HyqError, match="reward_weights must lie in"):
        LinearMDP(good.features, good.measures, good.reward_weights + 1.0, good.initial)
