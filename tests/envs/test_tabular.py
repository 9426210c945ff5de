import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.mdp import FiniteMDP
from hyq.core.types import FloatArray
from hyq.envs.tabular import TabularEnv, make_tabular_vector

COPIES = 20_000


def simulate(env: TabularEnv, policy: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the empirical occupancy (H, S, A) and the returns of one episode per copy."""
    rng = np.random.default_rng(seed + 1)
    occupancy, returns = np.zeros_like(policy), np.zeros(env.num_envs)
    state, _ = env.reset(seed=seed)
    for h in range(env.horizon):
        cumulative = np.cumsum(policy[h, state], axis=-1)
        action = (cumulative[:, :-1] <= rng.random((len(state), 1))).sum(axis=-1)
        np.add.at(occupancy[h], (state, action), 1.0 / env.num_envs)
        state, reward, terminated, _, _ = env.step(action)
        returns += reward
    assert terminated.all()
    return occupancy, returns


@pytest.mark.parametrize("reward_noise", ["none", "bernoulli"])
def test_simulation_matches_exact_occupancy_and_value(reward_noise: str) -> None:
    env = make_tabular_vector(
        COPIES,
        states=4,
        actions=3,
        horizon=4,
        instance_seed=1,
        reward_noise=reward_noise,  # type: ignore[arg-type]
    )
    policy = np.random.default_rng(2).dirichlet(np.ones(3), size=(4, 4))
    occupancy, returns = simulate(env, policy, seed=3)
    np.testing.assert_allclose(occupancy, env.mdp.occupancy(policy), atol=5 * 0.5 / COPIES**0.5)
    standard_error = returns.std() / COPIES**0.5
    assert abs(returns.mean() - env.mdp.value(policy)) < 5 * standard_error


def test_bernoulli_rewards_are_coins_with_the_mean_as_their_bias() -> None:
    mdp = FiniteMDP(np.ones((1, 1, 2, 1)), np.array([[[0.2, 1.0]]]), np.ones(1))
    env = TabularEnv(COPIES, mdp, reward_noise="bernoulli")
    env.reset(seed=0)
    _, reward, *_ = env.step(np.arange(COPIES) % 2)
    assert set(reward.tolist()) == {0.0, 1.0}
    assert reward[1::2].min() == 1.0
    assert reward[::2].mean() == pytest.approx(0.2, abs=5 * 0.4 / (COPIES / 2) ** 0.5)


def test_states_without_probability_are_never_visited() -> None:
    rows = np.zeros((1, 5, 1, 5))
    rows[..., 1], rows[..., 3] = 0.5, 0.5
    mdp = FiniteMDP(rows, np.zeros((1, 5, 1)), np.array([0, 0, 1.0, 0, 0]))
    env = TabularEnv(COPIES, mdp)
    state, _ = env.reset(seed=0)
    assert set(state.tolist()) == {2}
    state, *_ = env.step(np.zeros(COPIES, dtype=np.int64))
    assert set(state.tolist()) == {1, 3}


def test_the_instance_seed_names_the_instance() -> None:
    first, again, other = (make_tabular_vector(1, instance_seed=i).mdp for i in (0, 0, 1))
    np.testing.assert_array_equal(first.transition, again.transition)
    assert not np.array_equal(first.transition, other.transition)


def test_rewards_that_cannot_be_coins_raise() -> None:
    mdp = FiniteMDP(np.ones((1, 1, 1, 1)), np.full((1, 1, 1), 2.0), np.ones(1))
    with pytest.raises(HyqError, match="bernoulli rewards need means"):
        TabularEnv(1, mdp, reward_noise="bernoulli")
    with pytest.raises(HyqError, match="reward_noise must be one of"):
        TabularEnv(1, mdp, reward_noise="gaussian")  # type: ignore[arg-type]
