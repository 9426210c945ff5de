"""Datasets of small problems, made by policies a person can write down, mixed with random play."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.trees import tree_map
from hyq.core.types import Array
from hyq.data.dataset import Dataset, Episode
from hyq.envs.make import env_factory
from hyq.envs.spaces import space_to_json
from hyq.experts.control import (
    follow_cells,
    packaged_oracle,
    packaged_policy,
    pick_and_place,
    push_block,
)

Behaviour = Callable[[gym.Env[Any, Any], Any, np.random.Generator], Any]
"""Chooses an action, given the environment, its observation and a source of chance."""


@dataclass(frozen=True)
class Problem:
    """An environment with a policy that solves it."""

    env: str
    expert: Behaviour
    wrappers: tuple[str, ...] = ()
    transitions: int = 20_000
    noise: float = 0.0
    """Standard deviation of what is added to continuous actions, so that no two paths are one."""


def uniform(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Any:
    """Play anything."""
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete):
        return int(space.start + rng.integers(space.n))
    assert isinstance(space, gym.spaces.Box)
    return rng.uniform(space.low, space.high).astype(space.dtype)


def noisy(expert: Behaviour, noise: float) -> Behaviour:
    """Keep a controller's actions within their bounds and add noise to them."""

    def behaviour(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
        space = env.action_space
        assert isinstance(space, gym.spaces.Box)
        action = np.clip(expert(env, observation, rng), space.low, space.high)
        action = action + noise * rng.standard_normal(space.shape)
        return np.clip(action, space.low, space.high).astype(space.dtype)

    return behaviour


def pump_car(env: gym.Env[Any, Any], observation: Array, rng: np.random.Generator) -> int:
    """Push the way the car already rolls, which swings it up the hill in about 120 steps."""
    return 2 if observation[1] >= 0 else 0


def clumsy_acrobot(env: gym.Env[Any, Any], observation: Array, rng: np.random.Generator) -> int:
    """Push the way the lower link swings, half of the time."""
    if rng.random() < 0.5:
        return uniform(env, observation, rng)
    return 2 if observation[5] >= 0 else 0


LEFT, RIGHT, FORWARD, PICK_UP, TOGGLE = 0, 1, 2, 3, 5
_HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))


def open_door(env: gym.Env[Any, Any], observation: Array, rng: np.random.Generator) -> int:
    """Take the next step of a shortest way: to the key, through the door, to the goal.

    The search is breadth-first over (position, heading, whether the key is held, the door open).
    """
    world: Any = env.unwrapped
    door_now = next((cell for cell in world.grid.grid if cell and cell.type == "door"), None)
    start = (
        tuple(int(x) for x in world.agent_pos),
        int(world.agent_dir),
        world.carrying is not None,
        bool(door_now and door_now.is_open),
    )
    seen = {start}
    queue: deque[tuple[Any, int | None]] = deque([(start, None)])
    while queue:
        state, first = queue.popleft()
        for action, next_state in _moves(world, state):
            begun = action if first is None else first
            cell = world.grid.get(*next_state[0])
            if cell is not None and cell.type == "goal":
                return begun
            if next_state not in seen:
                seen.add(next_state)
                queue.append((next_state, begun))
    raise HyqError("this world has no way to its goal")


def _moves(world: Any, state: Any) -> Iterator[tuple[int, Any]]:
    (x, y), heading, has_key, is_open = state
    yield LEFT, ((x, y), (heading - 1) % 4, has_key, is_open)
    yield RIGHT, ((x, y), (heading + 1) % 4, has_key, is_open)
    ahead = (x + _HEADINGS[heading][0], y + _HEADINGS[heading][1])
    cell = world.grid.get(*ahead)
    kind = None if cell is None else cell.type
    if kind in (None, "goal") or (kind == "door" and is_open) or (kind == "key" and has_key):
        yield FORWARD, (ahead, heading, has_key, is_open)
    if kind == "key" and not has_key:
        yield PICK_UP, ((x, y), heading, True, is_open)
    if kind == "door" and has_key and not is_open:
        yield TOGGLE, ((x, y), heading, has_key, True)


MINIGRID = ("minigrid.wrappers:FullyObsWrapper", "minigrid.wrappers:ImgObsWrapper")
PROBLEMS: dict[str, Problem] = {
    "mountaincar": Problem("MountainCar-v0", pump_car),
    "acrobot": Problem("Acrobot-v1", clumsy_acrobot),
    "doorkey": Problem("MiniGrid-DoorKey-5x5-v0", open_door, MINIGRID, transitions=10_000),
    "pointmaze-umaze": Problem("hyq/PointMazeUMaze-v0", follow_cells, noise=0.5),
    "pointmaze-medium": Problem("hyq/PointMazeMedium-v0", follow_cells, noise=0.5),
    "fetch-push": Problem("hyq/FetchPush-v0", push_block, noise=0.4),
    "fetch-pick-and-place": Problem("hyq/FetchPickAndPlace-v0", pick_and_place, noise=0.25),
    "metaworld-reach": Problem("hyq/MetaWorldReach-v0", packaged_policy, noise=0.3),
    "metaworld-push": Problem("hyq/MetaWorldPush-v0", packaged_policy, noise=0.1),
    "metaworld-drawer-open": Problem("hyq/MetaWorldDrawerOpen-v0", packaged_policy, noise=0.3),
    "metaworld-door-open": Problem("hyq/MetaWorldDoorOpen-v0", packaged_policy, noise=0.3),
    "metaworld-button-press": Problem("hyq/MetaWorldButtonPress-v0", packaged_policy, noise=0.3),
    "metaworld-window-open": Problem("hyq/MetaWorldWindowOpen-v0", packaged_policy, noise=0.3),
    "ogbench-cube": Problem("hyq/OGBenchCube-v0", packaged_oracle, noise=0.3),
    "ogbench-scene": Problem("hyq/OGBenchScene-v0", packaged_oracle, noise=0.3),
}
"""Every scripted problem by name."""


def scripted_dataset(
    problem: str, random_share: float, seed: int, transitions: int | None = None
) -> Dataset:
    """Record whole episodes of a problem's expert and of random play, by transitions."""
    known, streams = PROBLEMS[problem], Streams(seed).below("logs", problem)
    env = env_factory(known.env, known.wrappers)()
    size = known.transitions if transitions is None else transitions
    expert = noisy(known.expert, known.noise) if known.noise else known.expert
    episodes: list[Episode] = []
    shares = ("expert", expert, 1 - random_share), ("random", uniform, random_share)
    for name, behaviour, share in shares:
        own, number, left = streams.below(name), 0, round(size * share)
        rng = own.generator("behaviour")
        while left > 0:
            episodes.append(play(env, behaviour, own.integer("episode", number), rng))
            number, left = number + 1, left - len(episodes[-1].action)
    noise = f" with noise {known.noise:g}" if known.noise else ""
    provenance = {
        "env": known.env,
        "wrappers": list(known.wrappers),
        "behaviour": f"{known.expert.__name__}{noise}, {random_share:.0%} random by transitions",
        "seed": seed,
        "max_episode_steps": env.spec.max_episode_steps if env.spec else None,
        "observation_space": space_to_json(env.observation_space),
        "action_space": space_to_json(env.action_space),
    }
    env.close()
    return Dataset.of(episodes, provenance)


def play(
    env: gym.Env[Any, Any], behaviour: Behaviour, seed: int, rng: np.random.Generator
) -> Episode:
    """Record one episode."""
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action = behaviour(env, observation, rng)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(float(reward))
    stacked = tree_map(lambda *arrays: np.array(arrays), *observations)
    return Episode(stacked, np.array(actions), np.array(rewards, np.float32), terminated)
