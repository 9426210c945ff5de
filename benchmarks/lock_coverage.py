"""Does a check rank the lock's datasets as Hy-Q's sample complexity does?

    python benchmarks/lock_coverage.py [--quick] [--out lock.jsonl]

Three datasets of the same size: the paper's trajectory and occupancy data, which cover the optimal
policy in different ways, and episodes of uniformly random actions, which do not. Each is checked
against the optimal policy, and V-type Hy-Q is run on it until it solves the lock or gives up.
results/theory has what it found.
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from hyq.core.seeding import Streams
from hyq.core.types import Array, Transitions
from hyq.coverage.check import check_all
from hyq.coverage.policy import play_in
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import CombinationLockVector, LockSpec
from hyq.experts.lock import lock_provenance, optimal_policy
from hyq.fqi.classes import GreedyPolicy
from hyq.fqi.rollout import lockstep
from hyq.runs import lock
from hyq.runs.lock_spec import LockRun

DATA = ("trajectory", "occupancy", "uniform")
PLAYED = 500
"""Episodes of the optimal policy that data is compared with."""


def random_episodes(spec: LockSpec, size: int, seed: int) -> Dataset:
    """Log episodes of uniformly random actions, `size` transitions in all."""
    streams = Streams(seed)
    env = CombinationLockVector(size // spec.horizon, **vars(spec))
    rng = streams.generator("random-episodes")
    env_seed = streams.integer("random-episodes", "environment")

    def at_random(h: int, observation: Array) -> Array:
        return rng.integers(spec.actions, size=len(observation))

    parts = [rows for rows, _ in lockstep(env, at_random, spec.horizon, env_seed)]
    step = np.repeat(np.arange(spec.horizon), env.num_envs)
    provenance = lock_provenance(spec) | {"behaviour": "uniform", "seed": seed}
    return Dataset.from_transitions(Transitions.concatenate(parts), step, provenance)


def measure(root: Path, kind: str, spec: LockRun, budget: int) -> dict[str, Any]:
    if kind == "uniform":
        data = random_episodes(spec.lock, spec.offline_samples, spec.seed)
    else:
        data = replace(spec, data=kind).dataset()
    data.save(root / "data")
    policy = GreedyPolicy(tuple(optimal_policy(spec.lock)))
    played = "optimal", play_in(policy, data, None, PLAYED)
    (found,) = check_all({kind: data}, played=played, by_step=policy)
    coverage = found.coverage
    assert coverage is not None
    covered, transfer = coverage.covered, coverage.transfer
    # One tuple a step and iteration makes the samples to solve as fine as they can be; data that
    # does not cover the policy is given ten, or it would take hours to give up.
    run = LockRun(
        data=str(root / "data"),
        horizon=spec.horizon,
        seed=spec.seed,
        m_on=1 if covered else 10,
        online_budget=budget,
    )
    *_, last = lock.start(run, root / "run")
    assert last.summary is not None
    measured = (transfer.value, transfer.low, transfer.high, coverage.condition)
    # Without cover the coefficient is infinite, which JSON has not: None stands for it.
    value, low, high, condition = measured if covered else [None] * 4
    return {
        **{name: last.summary[name] for name in ("solved", "online_steps", "eval_return")},
        "covered": covered,
        "transfer": value,
        "transfer_interval": [low, high],
        "condition": condition,
        "unsupported": coverage.unseen,
        "escaping": found.cells.escaping,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("lock.jsonl"))
    options = parser.parse_args()
    horizon, size, budget = (6, 6000, 2000) if options.quick else (20, 100_000, 60_000)
    for seed in range(1 if options.quick else 3):
        spec = LockRun(horizon=horizon, seed=seed, offline_samples=size)
        for kind in DATA:
            with tempfile.TemporaryDirectory() as directory:
                row = {"data": kind, "seed": seed, **measure(Path(directory), kind, spec, budget)}
            print(json.dumps(row), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
