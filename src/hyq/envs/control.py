"""Robot arms and mazes with sparse rewards, simulated by packages that are optional extras.

Every task here has the same shape. A step costs 1 until the task succeeds; the step that succeeds
costs nothing and ends the episode, so a return is minus the number of steps before success. With a
discount this is a reward of 1 at success, shifted and scaled by 1 / (1 - gamma), which matters to a
network whose values start near 0: an action that was never tried looks better than a known one, and
a bonus for entropy is small beside a step's cost, so that putting success off does not pay. An
episode that runs into its time limit is truncated. Actions are a Box from -1 to 1, observations
single precision, and `info["success"]` says whether the task succeeded. The seed of a reset and the
actions decide the episode, to the bit.
"""

import contextlib
import importlib
import io
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.trees import tree_map

Env = gym.Env[Any, Any]

EXTRAS = {"gymnasium_robotics": "robotics", "metaworld": "metaworld", "ogbench": "ogbench"}
"""The extra of this package that installs each simulator."""

MAZES = {
    "umaze": ["11111", "1r001", "11101", "1g001", "11111"],
    "medium": [
        "11111111",
        "1r011001",
        "10010001",
        "11000111",
        "10010001",
        "10100101",
        "10001gg1",
        "11111111",
    ],
}
"""Maps of the point mazes: 1 is wall; episodes start in a cell r, and goals are in cells g."""
FETCH = {
    "push": "push:MujocoFetchPushEnv",
    "pick-and-place": "pick_and_place:MujocoFetchPickAndPlaceEnv",
}
"""Module and class of the tasks of the Fetch arm."""
OGBENCH = {"cube": ("cube_env:CubeEnv", 2), "scene": ("scene_env:SceneEnv", 1)}
"""OGBench's environments: the class of each and the number of its task that is played. The block is
to be moved forward; drawer and window are to be opened."""


class SparseTask(gym.Wrapper[Any, Any, Any, Any]):
    """Gives a simulator's task its sparse reward, its end at success, and single precision."""

    def __init__(self, env: Env, action_repeat: int = 1) -> None:
        """Repeat every action `action_repeat` times: long tasks become ones of fewer decisions."""
        super().__init__(env)
        self._action_repeat = action_repeat
        self.observation_space = _single_precision(env.observation_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode that has not succeeded yet."""
        observation, _ = self._start(seed)
        while self._succeeded(observation, {}):
            observation, _ = self._start(None)
        return self._shown(observation), {"success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play an action; the episode is over when the task succeeded."""
        for _ in range(self._action_repeat):
            observation, _, _, _, info = self.env.step(action)
            success = self._succeeded(observation, info)
            if success:
                break
        reward = 0.0 if success else -1.0
        # What else the simulator tells would be copied at every step by a vector environment.
        return self._shown(observation), reward, success, False, {"success": success}

    def _start(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed)

    def _succeeded(self, observation: Any, info: dict[str, Any]) -> bool:
        return bool(info.get("success", False))

    def _shown(self, observation: Any) -> Any:
        return tree_map(lambda array: np.asarray(array, np.float32), observation)


class FetchTask(SparseTask):
    """A task of the Fetch arm, which may begin solved: the distance to the goal tells."""

    def _succeeded(self, observation: Any, info: dict[str, Any]) -> bool:
        world: Any = self.env.unwrapped
        return bool(world._is_success(observation["achieved_goal"], observation["desired_goal"]))


class MetaWorldTask(SparseTask):
    """A task of Meta-World, whose `reset` ignores the seed: a method of its own takes it."""

    def _start(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            world: Any = self.env.unwrapped
            world.seed(seed)
        return self.env.reset()


class OGBenchTask(SparseTask):
    """A task of OGBench, whose `reset` plays two actions sampled from the action space."""

    def _start(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.env.action_space.seed(seed)
        return self.env.reset(seed=seed)


def make_point_maze(maze: str = "umaze", action_repeat: int = 4, **settings: Any) -> Env:
    """Push a ball from one end of a maze to the other; see `MAZES`."""
    _check_task("maze", maze, MAZES)
    module = simulator("gymnasium_robotics", ".envs.maze.point_maze")
    cells = [[int(cell) if cell in "01" else cell for cell in row] for row in MAZES[maze]]
    env = module.PointMazeEnv(cells, continuing_task=False, **settings)
    Path(env.tmp_xml_file_path).unlink(missing_ok=True)  # read already, and left behind
    return SparseTask(env, action_repeat)


def make_fetch(task: str = "push", **settings: Any) -> Env:
    """Bring a block to a goal with the Fetch arm: on the table (push) or also above it."""
    _check_task("Fetch task", task, FETCH)
    file, _, name = FETCH[task].partition(":")
    module = simulator("gymnasium_robotics", f".envs.fetch.{file}")
    return FetchTask(getattr(module, name)(**settings))


def make_metaworld(task: str = "reach", action_repeat: int = 2, **settings: Any) -> Env:
    """Make any of Meta-World's tasks, with objects and goal in new places in every episode."""
    tasks = simulator("metaworld", ".env_dict").ENV_CLS_MAP
    _check_task("Meta-World task", task, [name.removesuffix("-v3") for name in tasks])
    env = tasks[f"{task}-v3"](**settings)
    # As it comes, the goal is hidden and a benchmark has to give the places.
    env._partially_observable = env._freeze_rand_vec = False
    env.seeded_rand_vec = env._set_task_called = True
    del env.sawyer_observation_space  # as it was while the goal was hidden
    env.observation_space = env.sawyer_observation_space
    env.max_path_length = sys.maxsize  # the time limit is Gymnasium's
    return MetaWorldTask(env, action_repeat)


def make_ogbench(task: str = "cube", **settings: Any) -> Env:
    """Move a block with OGBench's arm (cube), or open its drawer and its window (scene)."""
    _check_task("OGBench task", task, OGBENCH)
    place, number = OGBENCH[task]
    file, _, name = place.partition(":")
    base: Any = getattr(simulator("ogbench", f".manipspace.envs.{file}"), name)
    # OGBench's own is a property that makes a new space with a random seed whenever it is read.
    world = type(name, (base,), {"action_space": None})
    env = world("single", permute_blocks=False, reward_task_id=number, **settings)
    env.action_space = gym.spaces.Box(-1, 1, (5,), np.float32)
    return OGBenchTask(env)


def simulator(package: str, module: str = "") -> ModuleType:
    """Import a module of a simulator, or say which extra installs it."""
    try:
        # One of the packages prints a notice about other environments when it is imported.
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(package + module)
    except ImportError as error:
        raise HyqError(
            f"this environment needs {package} ({error}): "
            f"install it with pip install 'hyq[{EXTRAS[package]}]'"
        ) from None


def _check_task(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise HyqError(f"no {kind} {name!r}: choose from {', '.join(known)}")


def _single_precision(space: gym.Space[Any]) -> gym.Space[Any]:
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict({name: _single_precision(part) for name, part in space.items()})
    assert isinstance(space, gym.spaces.Box)
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return gym.spaces.Box(low, high, dtype=np.float32)
