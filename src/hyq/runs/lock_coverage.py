"""Does a check rank the lock's datasets as Hy-Q's sample complexity does?

Three datasets of the same size: the paper's trajectory and occupancy data, which cover the optimal
policy in different ways, and episodes of uniformly random actions, which do not. Each is checked
against the optimal policy, and V-type Hy-Q is run on it until it solves the lock or gives up.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.seeding import Streams
from hyq.core.types import Array, Transitions
from hyq.coverage.check import check_all
from hyq.coverage.steps import play_in
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import LATENTS, CombinationLockVector, LockSpec
from hyq.experts.lock import lock_provenance
from hyq.fqi.block import BlockFunction
from hyq.fqi.classes import GreedyPolicy
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
    env_seed = streams.integer("random-episodes", "environment")

    def at_random(h: int, observation: Array) -> Array:
        return rng.integers(spec.actions, size=len(observation))

    parts = [rows for rows, _ in lockstep(env, at_random, spec.horizon, env_seed)]
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
    horizon, size, budget = (6, 6000, 2000) if quick else (20, 100_000, 60_000)
    cases = [(seed, kind) for seed in range(1 if quick else 3) for kind in DATA]
    records = Records(out / "lock.jsonl")
    for done, (seed, kind) in enumerate(cases, start=1):
        spec = LockRun(horizon=horizon, seed=seed, offline_samples=size)
        with tempfile.TemporaryDirectory() as directory:
            row = _measure(Path(directory), kind, spec, budget)
        records.append({"data": kind, "seed": seed, **row})
        yield done, len(cases)


def _measure(root: Path, kind: str, spec: LockRun, budget: int) -> dict[str, Any]:
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
