"""Robot arms and mazes: sparse rewards, an end at success, episodes that come back to the bit."""

import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hyq.collector import Collector
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.trees import leaves
from hyq.envs import control
from hyq.envs.make import env_factory
from hyq.experts.control import packaged_policy
from hyq.experts.scripted import PROBLEMS, noisy, play, uniform

CONTROL = {name: problem for name, problem in PROBLEMS.items() if problem.noise}
"""The problems with continuous actions."""
SHAPES = {
    "pointmaze": ({"achieved_goal": (2,), "desired_goal": (2,), "observation": (4,)}, 2),
    "fetch": ({"achieved_goal": (3,), "desired_goal": (3,), "observation": (25,)}, 4),
    "metaworld": ({"": (39,)}, 4),
    "ogbench-cube": ({"": (28,)}, 5),
    "ogbench-scene": ({"": (40,)}, 5),
}
"""Shapes of the observations and number of actions of the problems that begin so."""
ONE_OF_EACH = ("pointmaze-umaze", "fetch-pick-and-place", "metaworld-door-open")
"""Those that are made quickly: OGBench compiles its model for seconds."""

pytestmark = pytest.mark.filterwarnings("error")


@cache
def made(name: str) -> gym.Env[Any, Any]:
    return fresh(name)


def fresh(name: str) -> gym.Env[Any, Any]:
    return env_factory(CONTROL[name].env)()


def record(env: gym.Env[Any, Any], seed: int, actions: list[Any]) -> list[Any]:
    """Return everything that an episode shows, as long as it lasts, and what it does not show."""
    seen = [env.reset(seed=seed)[0], physics(env)]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen += [observation, reward, terminated, physics(env)]
        if terminated or truncated:
            break
    return [leaf for part in seen for leaf in leaves(part)]


def physics(env: gym.Env[Any, Any]) -> Any:
    data: Any = env.unwrapped.data  # type: ignore[attr-defined]
    return np.concatenate([data.qpos, data.qvel, data.ctrl, data.qacc_warmstart])


def test_every_family_has_a_problem() -> None:
    assert all(any(name.startswith(family) for name in CONTROL) for family in SHAPES)


@pytest.mark.parametrize("name", CONTROL)
def test_spaces_are_single_precision_and_actions_bounded(name: str) -> None:
    env = made(name)
    shapes, actions = next(SHAPES[family] for family in SHAPES if name.startswith(family))
    space = env.observation_space
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {"": space}
    assert {key: part.shape for key, part in parts.items()} == shapes
    assert all(part.dtype == np.float32 for part in parts.values())
    assert env.action_space == gym.spaces.Box(-1, 1, (actions,), np.float32)
    observation, info = env.reset(seed=0)
    assert observation in space
    assert info == {"success": False}
    observation, _, _, _, info = env.step(env.action_space.sample())
    assert observation in space
    assert set(info) == {"success"}


@pytest.mark.parametrize("name", CONTROL)
def test_success_ends_the_episode_and_time_cuts_it(name: str) -> None:
    env = made(name)
    assert env.spec is not None
    limit = env.spec.max_episode_steps
    assert limit is not None
    assert limit <= 200
    still = play(env, lambda env, *_: np.zeros_like(env.action_space.sample()), 0, rng(0))
    assert (len(still.action), still.reward.sum(), still.terminated) == (limit, -limit, False)
    solved = play(env, noisy(CONTROL[name].expert, 0.0), 0, rng(0))
    assert solved.terminated
    np.testing.assert_array_equal(solved.reward[:-1], -1.0)
    assert solved.reward[-1] == 0.0


@pytest.mark.parametrize("name", CONTROL)
def test_the_noisy_controller_succeeds_where_random_play_does_not(name: str) -> None:
    env, chance = made(name), rng(0)
    expert = noisy(CONTROL[name].expert, CONTROL[name].noise)
    assert sum(play(env, expert, seed, chance).terminated for seed in range(10)) >= 8
    assert sum(play(env, uniform, seed, chance).terminated for seed in range(5)) <= 1


@pytest.mark.parametrize("name", CONTROL)
def test_a_seed_and_its_actions_decide_the_episode(name: str) -> None:
    used, other, chance = made(name), fresh(name), rng(1)
    solved = play(used, noisy(CONTROL[name].expert, 0.1), 3, chance)  # leaves things moved about
    assert len(solved.action) > 5
    actions = [uniform(used, None, chance) for _ in range(25)]
    again = record(used, 7, actions)
    for pair in zip(record(other, 7, actions), again, strict=True):
        np.testing.assert_array_equal(*pair)
    others = record(other, 8, actions)
    assert not all(np.array_equal(*pair) for pair in zip(others, again, strict=False))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_collector_brings_episodes_back(name: str) -> None:
    def collector() -> Collector:
        envs = [lambda: fresh(name)] * 2
        vector = SyncVectorEnv(envs, autoreset_mode=AutoresetMode.DISABLED)
        return Collector(vector, Streams(4))

    first, chance = collector(), rng(2)
    space = first.env.single_action_space
    actions = chance.uniform(-1, 1, (25, 2, *(space.shape or ()))).astype(np.float32)
    for action in actions[:15]:
        first.send(action)
        first.receive()
    second = collector()
    second.load_state(first.state())
    for action in actions[15:]:
        outcomes = []
        for one in (first, second):
            one.send(action)
            outcomes.append(one.receive())
        for left, right in zip(*(leaves(outcome.frame) for outcome in outcomes), strict=True):
            np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(outcomes[0].reward, outcomes[1].reward)


def test_an_action_is_repeated_until_success() -> None:
    once, thrice = (
        control.make_point_maze(action_repeat=1),
        control.make_point_maze(action_repeat=3),
    )
    for env in (once, thrice):
        env.reset(seed=0)
    action = np.array([1.0, 0.2], np.float32)
    for _ in range(3):
        single, *_ = once.step(action)
    repeated, *_ = thrice.step(action)
    np.testing.assert_array_equal(single["observation"], repeated["observation"])


def test_no_fetch_episode_begins_solved() -> None:
    env = control.make_fetch("push")
    plain: Any = env.unwrapped
    solved_at_first = 0
    for seed in range(60):
        start, _ = plain.reset(seed=seed)
        solved_at_first += plain._is_success(start["achieved_goal"], start["desired_goal"])
        seen, _ = env.reset(seed=seed)
        assert np.linalg.norm(seen["achieved_goal"] - seen["desired_goal"]) >= 0.05
    assert solved_at_first > 0  # otherwise this test shows nothing


def test_metaworld_shows_the_goal_and_moves_it_with_the_seed() -> None:
    env = control.make_metaworld("reach")
    goals = [env.reset(seed=seed)[0][-3:] for seed in (0, 1, 0)]
    assert np.abs(goals[0]).min() > 0
    assert not np.array_equal(goals[0], goals[1])
    np.testing.assert_array_equal(goals[0], goals[2])
    world: Any = env.unwrapped
    np.testing.assert_array_equal(goals[0], world._target_pos.astype(np.float32))


def test_metaworld_takes_any_of_its_tasks() -> None:
    env = env_factory("hyq/MetaWorld-v0", task="faucet-open")()
    assert play(env, noisy(packaged_policy, 0.0), 0, rng(0)).terminated


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    monkeypatch.setitem(sys.modules, "gymnasium_robotics.envs.fetch.push", None)
    with pytest.raises(HyqError, match=r"pip install 'hyq\[robotics\]'"):
        env_factory("hyq/FetchPush-v0")()


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("hyq/PointMazeUMaze-v0", {"maze": "large"}, "no maze 'large': choose from umaze, medium"),
        (
            "hyq/FetchPush-v0",
            {"task": "slide"},
            "no Fetch task 'slide': choose from push, pick-and-",
        ),
    ],
)
def test_unknown_tasks_raise(env: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HyqError, match=message):
        env_factory(env, **settings)()


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_maze_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    control.make_point_maze().reset(seed=0)
    assert not [*tmp_path.iterdir()]
