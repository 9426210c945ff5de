"""The paper's two offline datasets for the combination lock.

Both come from the optimal policy and cover it, but in different ways:

* *optimal trajectory*: episodes of the optimal policy with eps-greedy mistakes, eps = 1/H, and a
  uniformly random action at step H/2 that sends nine episodes of ten into the bad state;
* *optimal occupancy*: states the optimal policy visits, with uniformly random actions, so that the
  actions say nothing about what is good.
"""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.settings import decode_value
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import LATENTS, CombinationLockVector, LockSpec
from hyq.fqi.block import BlockFunction

LockData = Literal["occupancy", "trajectory"]


def lock_provenance(lock: LockSpec) -> dict[str, Any]:
    """Say of which environment a dataset is; a run compares this with its own environment."""
    return {"environment": "hyq/CombinationLock-v0", "parameters": dict(vars(lock))}


def lock_dataset(
    lock: LockSpec,
    kind: LockData,
    size: int = 500_000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda h: None,
) -> Dataset:
    """Make one of the paper's datasets: `size` transitions, spread evenly over the steps."""
    decode_value("kind", LockData, kind)
    if size < lock.horizon:
        raise HyqError(f"size must give every step a transition: at least {lock.horizon}")
    streams = Streams(seed)
    counts = np.full(lock.horizon, size // lock.horizon)
    counts[: size % lock.horizon] += 1
    env = CombinationLockVector(int(counts[0]), **vars(lock))
    observation, _ = env.reset(seed=streams.integer("lock-data", kind, "environment"))
    rng = streams.generator("lock-data", kind, "behaviour")
    # The observation before and after each transition, as a dataset has them.
    both = np.empty((size, 2, observation.shape[1]), np.float32)
    taken, paid, ended = np.empty(size, np.int64), np.empty(size, np.float32), np.empty(size, bool)
    ends = np.cumsum(counts)
    for h, (end, count) in enumerate(zip(ends, counts, strict=True)):
        uniform = rng.integers(lock.actions, size=env.num_envs)
        if kind == "occupancy":
            # The optimal policy stays in the good states, each equally likely at every step.
            observation = env.place(rng.integers(2, size=env.num_envs), h)
            action = uniform
        else:
            mistake = rng.random(env.num_envs) < 1.0 / lock.horizon
            action = np.where(mistake | (h == lock.horizon // 2), uniform, env.expert_action())
        next_observation, reward, terminated, _, _ = env.step(action)
        rows = slice(end - count, end)
        both[rows, 0], both[rows, 1] = observation[:count], next_observation[:count]
        taken[rows], paid[rows], ended[rows] = action[:count], reward[:count], terminated[:count]
        observation = next_observation
        progress(h)
    provenance = lock_provenance(lock) | {"behaviour": kind, "seed": seed}
    return Dataset(
        both.reshape(2 * size, -1),
        taken,
        paid,
        life_lost=np.zeros(size, np.bool_),
        length=np.ones(size, np.int64),
        terminated=ended,
        timestep=np.repeat(np.arange(lock.horizon), counts),
        provenance=provenance,
    )


def optimal_policy(spec: LockSpec) -> list[BlockFunction]:
    """Return the optimal policy as block functions, with the encoder that undoes the rotation."""
    env = CombinationLockVector(LATENTS, **vars(LockSpec(**{**vars(spec), "noise": 0.0})))
    code = np.array([env.place(np.arange(LATENTS), h) for h in range(spec.horizon)])
    good = spec.good_actions()
    functions = []
    for h in range(spec.horizon):
        centred = code[h] - code[h].mean(axis=0)
        head = np.zeros((LATENTS, spec.actions), np.float32)
        head[[0, 1], good[h]] = 1.0
        bias = -(centred @ code[h].mean(axis=0)).astype(np.float32)
        functions.append(BlockFunction(centred.T.astype(np.float32), bias, head, "hard"))
    return functions
