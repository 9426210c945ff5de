"""Controllers of robot arms and mazes: written here, or those that the simulators package."""

import warnings
from collections import deque
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.types import Array
from hyq.envs.control import simulator

STIFFNESS, DAMPING = 10.0, 4.0
"""Of a ball in a maze: force for each metre to the next cell, and against its speed."""
GAIN = 20.0
"""Of the Fetch arm: action for each metre to the target; a full one moves the hand by 5 cm."""
ALIGNED = 0.03
"""Metres from its target at which a drawer or window is left; success begins at 0.04."""
Cell = tuple[int, ...]
"""Row and column in a maze's map."""


def follow_cells(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Push a ball from cell to cell along a shortest way to the goal."""
    maze: Any = env.unwrapped.maze  # type: ignore[attr-defined]
    position, velocity = np.split(observation["observation"].astype(np.float64), 2)
    goal = observation["desired_goal"].astype(np.float64)
    here, there = (tuple(map(int, maze.cell_xy_to_rowcol(xy))) for xy in (position, goal))
    way = next_cell(maze.maze_map, here, there)
    target = goal if here == there else maze.cell_rowcol_to_xy(way)
    return STIFFNESS * (target - position) - DAMPING * velocity


def next_cell(cells: list[list[Any]], here: Cell, goal: Cell) -> Cell:
    """Return the neighbour of a cell that is nearest to the goal, by a search from the goal."""
    queue, seen = deque([goal]), {goal}
    while queue:
        row, column = cell = queue.popleft()
        for near in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if near == here:
                return cell
            if cells[near[0]][near[1]] != 1 and near not in seen:
                seen.add(near)
                queue.append(near)
    return goal


def push_block(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Bring the fingers down behind the block, as seen from the goal, and push it there."""
    hand, block, goal = _positions(observation)
    way = goal[:2] - block[:2]
    way /= np.linalg.norm(way) + 1e-9
    behind = np.append(block[:2] - 0.09 * way, block[2])
    offset = hand[:2] - block[:2]
    aside = offset - way * (offset @ way)
    if offset @ way < 0 and np.linalg.norm(aside) < 0.02 and hand[2] < block[2] + 0.03:
        target = np.append(block[:2] + 0.02 * way, block[2])  # push, straight through the block
    elif np.linalg.norm(hand[:2] - behind[:2]) < 0.02:
        target = behind
    else:
        target = np.append(behind[:2], block[2] + 0.09)  # travel above the block
    return np.append(GAIN * (target - hand), 0.0)


def pick_and_place(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Reach above the block, come down around it, close the fingers, and carry it to the goal."""
    hand, block, goal = _positions(observation)
    offset = block - hand
    width = float(observation["observation"][9:11].sum())
    if np.linalg.norm(offset) < 0.02:
        closed = width < 0.055
        target, grip = (hand + goal - block, -1.0) if closed else (hand, -1.0)
    elif np.linalg.norm(offset[:2]) < 0.015:
        target, grip = block, 1.0
    else:
        target, grip = block + np.array([0.0, 0.0, 0.06]), 1.0
    return np.append(GAIN * (target - hand), grip)


def _positions(observation: Any) -> tuple[Array, Array, Array]:
    seen = observation["observation"].astype(np.float64)
    return seen[:3], seen[3:6], observation["desired_goal"].astype(np.float64)


def packaged_policy(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Act as the policy that Meta-World packages for the environment's task."""
    policy = _policy(type(env.unwrapped).__name__)
    with warnings.catch_warnings():
        # It warns where a response exceeds the bounds, to which actions are clipped.
        warnings.simplefilter("ignore")
        action: Array = policy.get_action(observation.astype(np.float64))
    return action


@cache
def _policy(world: str) -> Any:
    tasks = simulator("metaworld", ".env_dict").ENV_CLS_MAP
    task = next(name for name, made in tasks.items() if made.__name__ == world)
    return simulator("metaworld", ".policies").ENV_POLICY_MAP[task]()


def packaged_oracle(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Act as OGBench's oracle of the first object that is not where it belongs."""
    world: Any = env.unwrapped
    info = world.compute_ob_info()
    kind = "cube"
    for name in ("drawer", "window") if hasattr(world, "_target_drawer_pos") else ():
        site = getattr(world, f"_{name}_target_site_id")
        info[f"privileged/target_{name}_handle_pos"] = world.data.site_xpos[site].copy()
        distance = info[f"privileged/{name}_pos"][0] - getattr(world, f"_target_{name}_pos")
        if kind == "cube" and abs(distance) > ALIGNED:
            kind = name
    info["privileged/target_block"] = 0
    target = world._cube_target_mocap_ids[0]
    info["privileged/target_block_pos"] = world.data.mocap_pos[target].copy()
    info["privileged/target_block_yaw"] = np.zeros(1)
    module = simulator("ogbench", f".manipspace.oracles.markov.{kind}_markov")
    oracle = getattr(module, f"{kind.capitalize()}MarkovOracle")(env=env)
    # Where an oracle rests when its object is done: here. Its own `reset` draws a place from
    # NumPy's global generator, and starts a counter.
    oracle._final_pos = info["proprio/effector_pos"]
    oracle._final_yaw, oracle._step = info["proprio/effector_yaw"][0], 0
    action: Array = oracle.select_action(observation, info)
    return action
