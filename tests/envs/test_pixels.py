"""Raw screens: a warning that names the wrapper, and the wrapper."""

import ale_py
import gymnasium as gym
import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.envs.make import make_vector_env

gym.register_envs(ale_py)
WRAPPER = "hyq.envs.pixels:StandardPixels"


def test_raw_screens_are_warned_of_and_the_wrapper_shows_standard_ones() -> None:
    with pytest.warns(UserWarning, match=WRAPPER):
        raw = make_vector_env("ALE/Pong-v5", 1)
    raw.close()
    env = make_vector_env("ALE/Pong-v5", 2, wrappers=[WRAPPER])
    assert env.single_observation_space == gym.spaces.Box(0, 255, (84, 84), np.uint8)
    runs = []
    for _ in range(2):
        seen, _ = env.reset(seed=3)
        frames = [seen, *(env.step(np.array([2, 3]))[0] for _ in range(10))]
        runs.append(np.stack(frames))
    np.testing.assert_array_equal(runs[0], runs[1])  # the seed decides everything
    assert (runs[0][0] != runs[0][-1]).any()
    assert 41 <= env.envs[0].unwrapped.ale.getEpisodeFrameNumber() <= 80  # type: ignore[attr-defined]
    env.close()


def test_the_wrapper_is_for_raw_screens_only() -> None:
    with pytest.raises(HyqError, match="no raw screen"):
        make_vector_env("CartPole-v1", 1, wrappers=[WRAPPER])
