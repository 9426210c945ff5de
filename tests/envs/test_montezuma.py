"""The game alone, in a vector, and in another process are one game, to the byte."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torch.nn.functional import interpolate

import hyq.envs  # noqa: F401
from hyq.core.errors import HyqError
from hyq.core.types import Array
from hyq.envs.montezuma import Montezuma, MontezumaVector, emulator

SEEDS = [2**31 - 7, 5]


@pytest.fixture
def games() -> Iterator[MontezumaVector]:
    env = gym.make_vec(
        "hyq/Montezuma-v0", 2, vectorization_mode="vector_entry_point", num_threads=1
    )
    assert isinstance(env, MontezumaVector)
    yield env
    env.close()


def random_actions(steps: int, num_envs: int = 2, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(18, size=(steps, num_envs))


def fingerprint(steps: int = 60) -> str:
    """Hash all that a seeded game with random actions shows."""
    env, total = Montezuma(), hashlib.sha256()
    observation, _ = env.reset(seed=SEEDS[0])
    for action in random_actions(steps)[:, 0]:
        total.update(observation.tobytes())
        observation, reward, *_ = env.step(action)
        total.update(repr(reward).encode())
    return total.hexdigest()


def shows(image: Array, screen: Array) -> bool:
    """Say whether an image is of a screen, but for what flickers."""
    pixels = torch.tensor(screen, dtype=torch.float32)[None, None]
    small = interpolate(pixels, size=image.shape, mode="area")[0, 0].numpy()
    return bool((np.abs(small - image) < 16).mean() > 0.9)


def test_gymnasium_accepts_the_single_environment() -> None:
    check_env(gym.make("hyq/Montezuma-v0").unwrapped, skip_render_check=True)


def test_single_and_vector_agree_through_deaths_and_game_over(games: MontezumaVector) -> None:
    single = Montezuma()
    one, _ = single.reset(seed=SEEDS[0])
    many, _ = games.reset(seed=SEEDS)
    finished, afterwards = False, 0
    for actions in random_actions(2000):
        np.testing.assert_array_equal(one, many[0])
        one, reward, terminated, truncated, info = single.step(actions[0])
        many, rewards, ended, cut, infos = games.step(actions)
        assert (reward, terminated, truncated) == (rewards[0], ended[0], cut[0])
        assert (info["lives"], info["score"]) == (infos["lives"][0], infos["score"][0])
        assert single.ale is not None
        assert single.ale.lives() == info["lives"]
        assert shows(one[-1], single.ale.getScreenGrayscale()) or terminated
        if ended.any():
            np.testing.assert_array_equal(one, many[0])
            # Without a seed both emulators continue with their randomness.
            many, infos = games.reset(options={"reset_mask": ended})
        if terminated:
            finished = True
            one, info = single.reset()
            assert info["lives"] == infos["lives"][0] == 6
        afterwards += finished
        if afterwards == 50:
            break
    assert afterwards == 50


def test_another_process_sees_the_same_bytes() -> None:
    code = "from tests.envs.test_montezuma import fingerprint; print(fingerprint())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == fingerprint()


def test_info_tells_the_room_the_score_and_the_lives() -> None:
    env = Montezuma(stack=1)
    observation, info = env.reset(seed=0)
    assert observation.shape == (1, 84, 84)
    assert info == {"room": 1, "score": 0, "lives": 6}


def test_an_episode_is_truncated_at_the_limit_and_not_terminated() -> None:
    single, games = Montezuma(step_limit=3), MontezumaVector(1, step_limit=3, num_threads=1)
    single.reset(seed=1)
    games.reset(seed=1)
    for step in range(3):
        _, _, terminated, truncated, _ = single.step(0)
        _, _, ended, cut, _ = games.step(np.zeros(1, np.int64))
        assert (terminated, truncated) == (ended[0], cut[0]) == (False, step == 2)
    with pytest.raises(gym.error.ResetNeeded):
        single.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        games.step(np.zeros(1, np.int64))
    games.close()


def test_a_game_can_be_reset_alone_by_its_own_seed(games: MontezumaVector) -> None:
    many, _ = games.reset(seed=[1, 2])
    for actions in random_actions(40):
        many, *_ = games.step(actions)
    mask = np.array([False, True])
    after, info = games.reset(seed=[None, 9], options={"reset_mask": mask})
    np.testing.assert_array_equal(after[0], many[0])
    np.testing.assert_array_equal(info["score"], [0.0, 0.0])
    single = Montezuma()
    one, _ = single.reset(seed=9)
    np.testing.assert_array_equal(after[1], one)
    for actions in random_actions(40, seed=1):
        many, *_ = games.step(actions)
        one, *_ = single.step(actions[1])
    np.testing.assert_array_equal(many[1], one)


def test_steps_can_be_sent_and_fetched_apart(games: MontezumaVector) -> None:
    actions = random_actions(10)
    games.reset(seed=SEEDS)
    together = [games.step(row)[0] for row in actions]
    games.reset(seed=SEEDS)
    for row, expected in zip(actions, together, strict=True):
        games.step_async(row)
        np.testing.assert_array_equal(games.step_wait()[0], expected)


def test_mistakes_are_reported_in_one_line(games: MontezumaVector) -> None:
    with pytest.raises(HyqError, match="reset all environments once"):
        games.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(HyqError, match="2 truth values"):
        games.reset(options={"reset_mask": np.array([1, 0])})
    with pytest.raises(HyqError, match="one seed an environment"):
        games.reset(seed=[1])
    with pytest.raises(HyqError, match="stack must be at least 1"):
        Montezuma(stack=0)


def test_different_seeds_differ() -> None:
    script = random_actions(60)[:, 0].tolist()
    memories = []
    for seed in (0, 1):
        game = emulator(seed, stickiness=0.25)
        for action in script:
            game.act(action)
        memories.append(game.getRAM().tobytes())
    assert memories[0] != memories[1]
