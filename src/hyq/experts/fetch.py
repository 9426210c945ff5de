"""Controllers of the Fetch arm: push a block along the table, or grasp and carry it."""

from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.types import Array

GAIN = 20.0
"""Action for each metre to the target: a full action moves the hand by 5 centimetres."""


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
