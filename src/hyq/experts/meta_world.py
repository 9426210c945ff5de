"""The scripted policies that Meta-World packages, one for each of its tasks."""

import warnings
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.types import Array
from hyq.envs.control import simulator


def packaged_policy(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Act as the policy of the environment's task does."""
    with warnings.catch_warnings():
        # It warns where a response exceeds the bounds, to which actions are clipped.
        warnings.simplefilter("ignore")
        action: Array = _policy(type(env.unwrapped).__name__).get_action(
            observation.astype(np.float64)
        )
    return action


@cache
def _policy(world: str) -> Any:
    tasks = simulator("metaworld", ".env_dict").ENV_CLS_MAP
    task = next(name for name, made in tasks.items() if made.__name__ == world)
    return simulator("metaworld", ".policies").ENV_POLICY_MAP[task]()
