"""How fast the lock and Hy-Q on it are, as shares of what this machine can do.

    make bench        (or: python benchmarks/lock.py [--repeats 5])

Prints, all from one run on one core:
* environment steps a second, observations included, for several numbers of lanes, and the share of
  the limit set by drawing the same number of normals and doing nothing else;
* the time of a Hy-Q iteration at H=100 split into collecting, making targets and fitting;
* the share of the machine's matrix-product and memory rates, measured here, that the encoder's
  objective reaches: each evaluation reads the observations twice and does 12 flops an entry.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import get_args
from unittest import mock

import numpy as np
import torch
import tyro
from scipy.special import softmax

from hyq.core.seeding import Streams
from hyq.core.types import FloatArray
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.experts.lock import LockData, lock_dataset
from hyq.fqi import block
from hyq.fqi.block import BlockClass
from hyq.fqi.hyq_fqi import HyQ, HyQConfig

LOCK = LockSpec(horizon=100)


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of `work`, after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def environment(repeats: int) -> None:
    print("environment, 128-dimensional observations")
    print(f"{'lanes':>8} {'steps/s':>12} {'limit steps/s':>14} {'share':>7}")
    for lanes in (10, 100, 1000, 2000, 4000):
        steps = max(100, 200_000 // lanes)
        env = CombinationLockVector(lanes, **vars(LOCK))
        env.reset(seed=0)
        rate = lanes * steps / seconds(partial(play, env, steps), repeats)
        limit = lanes * steps / seconds(partial(draw_noise, lanes, steps), repeats)
        print(f"{lanes:8d} {rate:12,.0f} {limit:14,.0f} {rate / limit:7.0%}")


def play(env: CombinationLockVector, steps: int) -> None:
    action = np.zeros(env.num_envs, dtype=int)
    for _ in range(steps):
        env.step(action)


def draw_noise(lanes: int, steps: int) -> None:
    noise = torch.Generator()
    for _ in range(steps):
        torch.empty((lanes, LOCK.observation_dim)).normal_(0.0, 1.0, generator=noise)


def machine(repeats: int) -> tuple[float, float]:
    """Return (flops/s of a large float32 matrix product, bytes/s of reading memory)."""
    a = np.random.default_rng(0).random((1536, 1536), dtype=np.float32)
    flops = 2 * 1536**3 / seconds(lambda: a @ a, repeats)
    wide = np.ones(64_000_000, dtype=np.float32)
    bandwidth = wide.nbytes / seconds(wide.sum, repeats)
    return flops, bandwidth


def iteration(repeats: int) -> None:
    flops, bandwidth = machine(repeats)
    print(f"\nthis core: {flops / 1e9:.0f} Gflop/s float32, {bandwidth / 1e9:.1f} GB/s read")
    for data in get_args(LockData):
        offline = lock_dataset(LOCK, data, 500_000, seed=0)
        env = CombinationLockVector(10, **vars(LOCK))
        family = BlockClass(LOCK.observation_dim, LOCK.actions)
        algorithm = HyQ(family, HyQConfig(iterations=3))
        counted = CountingSoftmax()
        with mock.patch.object(block, "softmax", counted):
            steps = list(algorithm.run(env, offline, Streams(0)))
        print(f"\nHy-Q at H=100, {data} data, m_on=10: seconds an iteration")
        for step in steps:
            parts = "  ".join(f"{name} {value:.2f}" for name, value in step.seconds.items())
            print(f"  {step.iteration}: {parts}  total {sum(step.seconds.values()):.2f}")
        fitting = sum(step.seconds["fit"] for step in steps)
        entries = counted.rows * LOCK.observation_dim
        needed_flops, needed_bytes = 12 * entries, 8 * entries
        print(
            f"  fit: {counted.calls:,} objective evaluations, "
            f"{needed_flops / fitting / flops:.0%} of the matrix-product rate, "
            f"{needed_bytes / fitting / bandwidth:.0%} of the memory rate"
        )


class CountingSoftmax:
    """Counts how many rows the encoder was evaluated on."""

    def __init__(self) -> None:
        self.calls = 0
        self.rows = 0

    def __call__(self, logits: FloatArray, axis: int) -> FloatArray:
        self.calls += 1
        self.rows += len(logits)
        return softmax(logits, axis=axis)


def main(repeats: int = 5) -> None:
    """Benchmark the lock and Hy-Q on it.

    Args:
        repeats: How often each measurement is repeated; the median counts.
    """
    torch.set_num_threads(1)
    environment(repeats)
    iteration(repeats)


if __name__ == "__main__":
    tyro.cli(main)
