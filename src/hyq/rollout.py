"""The acting loop: lanes of a vector environment, stepped together from a reset.

An online sample is one environment transition. Whoever acts counts all of them, roll-ins included.
"""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.errors import HyqError
from hyq.core.types import Array, FloatArray, Transitions

VectorEnv = gym.vector.VectorEnv[Array, Array, Array]
Policy = Callable[[int, Array], Array]
"""A non-stationary policy: actions for a batch of observations at step h."""


def lockstep(
    env: VectorEnv, policy: Policy, steps: int, seed: int
) -> Iterator[tuple[Transitions, Array]]:
    """Reset every lane and yield (transitions of step h, indices of their lanes) for h < steps.

    A lane whose episode ends early yields nothing more; the loop stops when none is left.
    """
    observation, _ = env.reset(seed=seed)
    lanes = np.arange(env.num_envs)
    for h in range(steps):
        action = policy(h, observation)
        next_observation, reward, terminated, truncated, _ = env.step(action)
        rows = Transitions(
            observation, action, reward, 1.0 - terminated.astype(np.float32), next_observation
        )
        yield (rows if len(lanes) == env.num_envs else rows[lanes]), lanes
        ended = terminated | truncated
        if ended.any():
            lanes = lanes[~ended[lanes]]
            if not len(lanes):
                return
        observation = next_observation


def returns(env: VectorEnv, policy: Policy, steps: int, seed: int) -> FloatArray:
    """Play one episode in every lane and return the sum of rewards of each."""
    total = np.zeros(env.num_envs)
    for rows, lanes in lockstep(env, policy, steps, seed):
        total[lanes] += rows.reward
    return total


def uniform_actions(space: gym.Space[Any], count: int, rng: np.random.Generator) -> Array:
    """Draw actions uniformly from a discrete or a bounded box space."""
    if isinstance(space, gym.spaces.Discrete):
        return space.start + rng.integers(space.n, size=count)
    if isinstance(space, gym.spaces.Box) and space.is_bounded():
        return rng.uniform(space.low, space.high, size=(count, *space.shape)).astype(space.dtype)
    raise HyqError(f"there is no uniform action in {space}: collect with the Q-type instead")
