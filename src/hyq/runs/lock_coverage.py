"""Does a check rank the lock's datasets as Hy-Q's sample complexity does?

Three datasets of the same size: the paper's trajectory and occupancy data, which cover the optimal
policy in different ways, and episodes of uniformly random actions, which do not. Each is checked
against the optimal policy, and V-type Hy-Q is run on it until it solves the lock or gives up.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.seeding import Streams
from hyq.core.types import Transitions
from hyq.coverage.check import check_all
from hyq.coverage.policy import load_policy, save_policy
from hyq.coverage.steps import play_in
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import LATENTS, CombinationLockVector, LockSpec
from hyq.experts.lock import lock_dataset, lock_provenance
from hyq.fqi.block import BlockFunction
from hyq.fqi.rollout import lockstep
from hyq.runs import lock
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import Records

DATA = ("trajectory", "occupancy", "uniform")
PLAYED = 500
"""Episodes of the optimal policy that data is compared with."""


def random_episodes(spec: LockSpec, size: int, seed: int) -> Dataset:
    """Log episodes of uniformly random actions, `size` transitions in all."""
    streams = Streams(seed)
    env = CombinationLockVector(size // spec.horizon, **vars(spec))
    rng = streams.generator("random-episodes")
    parts = [
        rows
        for rows, _ in lockstep(
            env,
            lambda h, observation: rng.integers(spec.actions, size=len(observation)),
            spec.horizon,
            streams.integer("random-episodes", "environment"),
        )
    ]
    step = np.repeat(np.arange(spec.horizon), env.num_envs)
    provenance = lock_provenance(spec) | {"behaviour": "uniform", "seed": seed}
    return Dataset.from_transitions(Transitions.concatenate(parts), step, provenance)


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


def start(out: Path, quick: bool = False) -> Iterator[tuple[int, int]]:
    """Append a record a dataset and seed to `out`/lock.jsonl, yielding (done, all) after each."""
    seeds = range(1 if quick else 3)
    horizon, size, budget = (6, 6000, 2000) if quick else (20, 100_000, 60_000)
    done, records = 0, Records(out / "lock.jsonl")
    for seed in seeds:
        spec = LockRun(horizon=horizon, seed=seed, offline_samples=size)
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            save_policy(root / "optimal", optimal_policy(spec.lock))
            random_episodes(spec.lock, size, seed).save(root / "uniform")
            for kind in DATA[:2]:
                lock_dataset(spec.lock, kind, size, seed).save(root / kind)  # type: ignore[arg-type]
            for kind in DATA:
                row = _measure(root, kind, spec, budget)
                records.append({"data": kind, "seed": seed, **row})
                yield (done := done + 1), len(seeds) * len(DATA)


def _measure(root: Path, kind: str, spec: LockRun, budget: int) -> dict[str, Any]:
    data, policy = Dataset.load(root / kind), load_policy(root / "optimal")
    played = "optimal", play_in(policy, data, None, PLAYED)
    (found,) = check_all({kind: data}, played=played, by_step=policy)
    coverage = found.coverage
    assert coverage is not None
    covered, transfer = coverage.covered, coverage.transfer
    # One tuple a step and iteration makes the samples to solve as fine as they can be; data that
    # does not cover the policy is given ten, or it would take hours to give up.
    run = LockRun(
        data=str(root / kind),
        horizon=spec.horizon,
        seed=spec.seed,
        m_on=1 if covered else 10,
        online_budget=budget,
    )
    *_, last = lock.start(run, root / f"run-{kind}")
    assert last.summary is not None
    return {
        **{name: last.summary[name] for name in ("solved", "online_steps", "eval_return")},
        "covered": covered,
        "transfer": _finite(transfer.value, covered),
        "transfer_interval": [_finite(end, covered) for end in (transfer.low, transfer.high)],
        "condition": _finite(coverage.condition, covered),
        "unsupported": coverage.unseen,
        "escaping": found.cells.escaping,
    }


def _finite(value: float, covered: bool) -> float | None:
    """Without cover the coefficient is infinite, which JSON has not: None stands for it."""
    return value if covered else None
