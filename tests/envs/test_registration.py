import importlib
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hyq.envs
from hyq.core.types import Array, FloatArray

NAMES = [
    "hyq/Tabular-v0",
    "hyq/LinearMDP-v0",
    "hyq/LQR-v0",
    "hyq/OfflineHard-v0",
]


# A regulator's states and actions are unbounded, which Gymnasium finds worth a remark.
@pytest.mark.filterwarnings("ignore:.*A Box .* space m.* value is -?infinity:UserWarning")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_accepts_the_single_environment(name: str) -> None:
    check_env(gym.make(name).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_vector_environment_keeps_its_spaces_and_restarts(name: str) -> None:
    env = gym.make_vec(name, num_envs=3)
    observation, _ = env.reset(seed=0)
    env.action_space.seed(0)
    ends = []
    for _ in range(25):
        assert observation in env.observation_space
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert reward.shape == (3,)
        assert not truncated.any()
        ends.append(bool(terminated.all()))
        assert terminated.all() == terminated.any()
    horizon = ends.index(True) + 1
    # A restart costs the one step that Gymnasium's NEXT_STEP mode asks for.
    assert [i for i, end in enumerate(ends) if end] == list(range(horizon - 1, 25, horizon + 1))


def play(name: str, seed: int, action_seed: int = 0) -> tuple[Array, FloatArray]:
    env = gym.make_vec(name, num_envs=8)
    observation, _ = env.reset(seed=seed)
    env.action_space.seed(action_seed)
    observations, rewards = [observation], []
    for _ in range(12):
        observation, reward, *_ = env.step(env.action_space.sample())
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    for first, second in zip(play(name, seed=5), play(name, seed=5), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "hyq/OfflineHard-v0"])
def test_different_seeds_differ(name: str) -> None:
    assert not np.array_equal(play(name, seed=5)[0], play(name, seed=6)[0])


@pytest.mark.parametrize("name", NAMES)
def test_single_and_vector_agree(name: str) -> None:
    single, vector = gym.make(name), gym.make_vec(name, num_envs=1)
    one, _ = single.reset(seed=9)
    many, _ = vector.reset(seed=9)
    vector.action_space.seed(1)
    terminated = False
    while not terminated:
        np.testing.assert_array_equal(one, many[0])
        action = vector.action_space.sample()
        one, reward, terminated, _, _ = single.step(action[0])
        many, rewards, *_ = vector.step(action)
        assert reward == rewards[0]


def test_importing_again_changes_nothing() -> None:
    before = {name: spec for name, spec in gym.registry.items() if name.startswith("hyq/")}
    importlib.reload(hyq.envs)
    after = {name: spec for name, spec in gym.registry.items() if name.startswith("hyq/")}
    assert set(NAMES) | {"hyq/CombinationLock-v0"} <= set(before)
    assert all(after[name] is before[name] for name in before)


@pytest.mark.parametrize(
    "code",
    [
        "import hyq, gymnasium; gymnasium.make('hyq/CombinationLock-v0')",
        "import gymnasium, hyq; gymnasium.make('hyq/CombinationLock-v0')",
        "import hyq.envs, gymnasium; gymnasium.make('hyq/CombinationLock-v0')",
        "from gymnasium.envs.registration import make; import hyq; make('hyq/CombinationLock-v0')",
        "import hyq; from gymnasium.envs.registration import make; make('hyq/CombinationLock-v0')",
        # As Gymnasium has it for the environments of other packages, without an import.
        "import gymnasium; gymnasium.make('hyq:hyq/CombinationLock-v0')",
        "import gymnasium; gymnasium.make_vec('hyq:hyq/Tabular-v0', 2)",
    ],
)
def test_gymnasium_knows_the_environments_in_a_fresh_process(code: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
