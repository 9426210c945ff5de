"""Episodes of fixed length in every environment of a vector, stepped together."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from hyq.core.errors import HyqError
from hyq.core.types import Array, Transitions

VectorEnv = gym.vector.VectorEnv[Array, Array, Array]
Policy = Callable[[int, Array], Array]
"""A non-stationary policy: actions for a batch of observations at step h."""


def lockstep(
    env: VectorEnv, policy: Policy, steps: int, seed: int
) -> Iterator[tuple[Transitions, Array]]:
    """Reset all environments and yield (transitions of step h, their indices) for h < steps.

    An environment whose episode ends early yields nothing more; the loop stops when none is left.
    """
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if mode is not AutoresetMode.NEXT_STEP:
        raise HyqError(f"environments must be reset in the step after their end, not as in {mode}")
    observation, _ = env.reset(seed=seed)
    running = np.arange(env.num_envs)
    for h in range(steps):
        action = policy(h, observation)
        next_observation, reward, terminated, truncated, _ = env.step(action)
        rows = Transitions(
            observation, action, reward, 1.0 - terminated.astype(np.float32), next_observation
        )
        yield (rows if len(running) == env.num_envs else rows[running]), running
        running = running[~(terminated | truncated)[running]]
        if not len(running):
            return
        observation = next_observation


def uniform_actions(space: gym.Space[Any], count: int, rng: np.random.Generator) -> Array:
    """Draw actions uniformly from a discrete or a bounded box space."""
    if isinstance(space, gym.spaces.Discrete):
        return space.start + rng.integers(space.n, size=count)
    if isinstance(space, gym.spaces.Box) and space.is_bounded():
        return rng.uniform(space.low, space.high, size=(count, *space.shape)).astype(space.dtype)
    raise HyqError(f"there is no uniform action in {space}: collect with the Q-type instead")


def uniform_from(depth: int, policy: Policy, env: VectorEnv, rng: np.random.Generator) -> Policy:
    """Follow `policy` until step `depth`, and act uniformly from there on."""
    space, count = env.single_action_space, env.num_envs
    return lambda h, x: policy(h, x) if h < depth else uniform_actions(space, count, rng)
