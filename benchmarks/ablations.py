"""What each of Hy-Q's choices on the lock is worth: leave one out at a time.

    python benchmarks/ablations.py [--horizon 100] [--seeds 100 101] [--budget 505000]
        [--emission per-step] [--noise 0.2]

Prints a Markdown table: of how many seeds were solved within the budget, and at how many online
samples (median; "-" where none was).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
from dataclasses import replace
from typing import get_args

import tyro

from hyq.core.seeding import Streams
from hyq.envs.combination_lock import CombinationLockVector, Emission
from hyq.experts.lock import LockData
from hyq.fqi.block import BlockClass
from hyq.fqi.hyq_fqi import HyQ
from hyq.runs.lock import SOLVED_SHARE, evaluate
from hyq.runs.lock_algorithms import hyq
from hyq.runs.lock_spec import LockRun


def variants(algorithm: HyQ) -> dict[str, HyQ]:
    family = algorithm.family
    assert isinstance(family, BlockClass)

    def other(**changes: object) -> HyQ:
        return replace(algorithm, family=replace(family, **changes))  # type: ignore[arg-type]

    return {
        "nothing": algorithm,
        "values read with the soft encoding": other(encoding="soft"),
        "head not kept in [0, V_max]": other(bounded=False),
        "no pull towards the start": other(proximal=0.0),
        "no least squares for the encoder": other(steps=0),
    }


def samples_to_solve(spec: LockRun, algorithm: HyQ) -> int | None:
    env = CombinationLockVector(spec.m_on, **vars(spec.lock))
    for step in algorithm.run(env, spec.dataset(), Streams(spec.seed)):
        mean_return, _ = evaluate(step.policy, spec, 200, step.iteration)
        if mean_return >= SOLVED_SHARE * spec.lock.optimal_return:
            return step.online_steps
        if step.online_steps >= spec.online_budget:
            break
    return None


def main(
    horizon: int = 100,
    seeds: tuple[int, ...] = (100, 101),
    budget: int = 505_000,
    emission: Emission = "shared",
    noise: float = 0.1,
) -> None:
    """Leave out one choice at a time.

    Args:
        horizon: Of the lock.
        seeds: One run each.
        budget: Online samples after which a run counts as not solved.
        emission: Of the lock.
        noise: Of the lock.
    """
    datasets = get_args(LockData)
    print("| left out | " + " | ".join(datasets) + " |")
    print("| --- |" + " --- |" * len(datasets))
    for name in variants(hyq(LockRun(horizon=horizon))):
        cells = []
        for data in datasets:
            runs = [
                LockRun(horizon=horizon, data=data, seed=seed, online_budget=budget,
                        offline_samples=5000 * horizon, emission=emission, noise=noise)
                for seed in seeds
            ]  # fmt: skip
            needed = [samples_to_solve(run, variants(hyq(run))[name]) for run in runs]
            solved = [n for n in needed if n is not None]
            median = f"{statistics.median(solved):,.0f}" if solved else "-"
            cells.append(f"{len(solved)} of {len(seeds)}, {median}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
