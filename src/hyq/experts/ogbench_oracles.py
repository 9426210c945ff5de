"""The oracles that OGBench packages, led through a task of several objects one after the other."""

from typing import Any

import gymnasium as gym
import numpy as np

from hyq.core.types import Array
from hyq.envs.control import simulator

ALIGNED = 0.03
"""Metres from its target at which a drawer or window is left; success begins at 0.04."""


def packaged_oracle(env: gym.Env[Any, Any], observation: Any, rng: np.random.Generator) -> Array:
    """Act as the oracle of the first object that is not where it belongs."""
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
