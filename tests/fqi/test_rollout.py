"""The acting loop, on environments whose episodes are known."""

from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from hyq.core.errors import HyqError
from hyq.fqi.rollout import lockstep, uniform_actions
from tests.fqi.conformance import returns


def test_lockstep_follows_each_environment_until_its_episode_ends() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=3)
    push_right = lambda h, x: np.ones(3, dtype=int)  # noqa: E731  (falls within 11 steps)
    alive = [set(running.tolist()) for _, running in lockstep(env, push_right, 50, seed=0)]
    assert alive[0] == {0, 1, 2}
    assert all(later <= earlier for earlier, later in pairwise(alive))
    assert len(alive) < 15
    env.close()


def test_discount_is_zero_only_where_an_episode_terminated() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2, max_episode_steps=3)
    steps = [rows for rows, _ in lockstep(env, lambda h, x: np.arange(2), 10, seed=0)]
    assert len(steps) == 3  # truncated by the time limit, which is not termination
    assert all((rows.discount == 1).all() for rows in steps)
    env.close()


def test_returns_add_up_the_rewards_of_one_episode_an_environment() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=3)
    policy = lambda h, x: np.ones(3, dtype=int)  # noqa: E731
    total = returns(env, policy, 50, seed=0)
    counted = np.zeros(3)
    for _, running in lockstep(env, policy, 50, seed=0):
        counted[running] += 1  # CartPole pays one a step
    np.testing.assert_array_equal(total, counted)
    env.close()


def test_uniform_actions_cover_the_space_evenly() -> None:
    rng = np.random.default_rng(0)
    drawn = uniform_actions(gym.spaces.Discrete(4, start=2), 8000, rng)
    np.testing.assert_allclose(np.bincount(drawn)[2:] / 8000, 0.25, atol=0.02)
    box = uniform_actions(
        gym.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 4], np.float32)), 8000, rng
    )
    np.testing.assert_allclose(box.mean(axis=0), [0.0, 2.0], atol=0.05)
    with pytest.raises(HyqError, match="no uniform action"):
        uniform_actions(gym.spaces.Box(-np.inf, np.inf, (2,)), 1, rng)


def test_environments_that_reset_themselves_at_once_raise() -> None:
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        one = partial(gym.make, "CartPole-v1")
        env = gym.vector.SyncVectorEnv([one, one], autoreset_mode=mode)
        with pytest.raises(HyqError, match="step after their end"):
            next(lockstep(env, lambda h, x: np.zeros(2, int), 5, seed=0))
