"""Runs on the combination lock: any method, watched, recorded, killed and resumed at will."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import BAD, CombinationLockVector, lock_parameters
from hyq.fqi.base import Step
from hyq.fqi.rollout import Policy, lockstep
from hyq.runs.checkpoint import load_state, save_state
from hyq.runs.lock_algorithms import build
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import RunDirectory

SOLVED_SHARE = 0.99
"""A lock is solved when the policy earns this share of the optimal return."""
CONFIRMING_EPISODES = 1000
"""Fresh episodes that must confirm it, so that no lucky evaluation ends a run."""


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every iteration."""

    row: dict[str, Any]
    summary: dict[str, Any] | None
    """Set on the last one."""


def start(spec: LockRun, out: Path) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    build(spec)  # an impossible method is refused before data is made
    RunDirectory.check_free(out)
    began = time.perf_counter()
    dataset = spec.dataset()
    manifest = {
        "experiment": "lock",
        "spec": asdict(spec),
        "seed": spec.seed,
        "dataset": {"sha256": dataset.digest(), "provenance": dict(dataset.provenance)},
    }
    return _run(spec, dataset, RunDirectory.create(out, manifest), began)


def resume(out: Path) -> Iterator[Progress]:
    """Go on with a run that was interrupted, exactly where its last checkpoint left it."""
    directory = RunDirectory.open(out)
    if directory.summary is not None:
        raise HyqError(f"{out} is finished: its result is in {out / 'summary.json'}")
    manifest = directory.manifest
    spec = LockRun(**manifest["spec"])
    began = time.perf_counter()
    dataset = spec.dataset()
    if dataset.digest() != manifest["dataset"]["sha256"]:
        raise HyqError(f"the offline data of {out} has changed since the run began")
    return _run(spec, dataset, directory, began)


def _run(
    spec: LockRun, dataset: Dataset, directory: RunDirectory, began: float
) -> Iterator[Progress]:
    algorithm = build(spec)
    env = CombinationLockVector(spec.m_on, **lock_parameters(spec.lock))
    enough = SOLVED_SHARE * spec.lock.optimal_return
    with directory.only_writer():
        saved, earlier = load_state(directory.checkpoint, algorithm) or (None, 0.0)
        for step in algorithm.run(env, dataset, Streams(spec.seed), saved):
            examined = examine(step.policy, spec, spec.evaluation_episodes, step.iteration)
            if solved := examined.mean_return >= enough:
                examined = examine(
                    step.policy, spec, CONFIRMING_EPISODES, step.iteration, purpose="confirm"
                )
                solved = examined.mean_return >= enough
            row = _row(step, examined)
            directory.append(row)
            elapsed = earlier + time.perf_counter() - began
            spent = step.iteration == spec.iterations or step.online_steps >= spec.online_budget
            summary = None
            if solved or spent:
                peak = max(directory.rows, key=lambda row: float(row["eval_return"]))
                summary = {
                    "solved": bool(solved),
                    "eval_return": examined.mean_return,
                    "eval_episodes": examined.episodes,
                    "peak_return": peak["eval_return"],
                    "optimal_return": spec.lock.optimal_return,
                    "online_steps": step.online_steps,
                    "offline_samples": len(dataset),
                    "wall_seconds": elapsed,
                    "iterations": step.iteration,
                    **{
                        name: getattr(spec, name)
                        for name in (
                            "algorithm",
                            "data",
                            "seed",
                            "horizon",
                            "anti_reward_probability",
                        )
                    },
                }
                directory.finish(summary, step.state.snapshot())
            else:
                snapshot = step.state.snapshot()
                save_state(directory.checkpoint, snapshot, step.iteration, elapsed)
            yield Progress(row, summary)
            if summary:
                return


def _row(step: Step[Any], examined: "Examination") -> dict[str, Any]:
    return {
        "iteration": step.iteration,
        "online_steps": step.online_steps,
        "eval_return": examined.mean_return,
        "depth": examined.depth,
        **step.metrics,
        "seconds": dict(step.seconds),
    }


@dataclass(frozen=True)
class Examination:
    """How a policy does on a lock of its own, with its own random numbers."""

    episodes: int
    mean_return: float
    depth: float
    """Steps, on average, before the first mistake."""


def examine(
    policy: Policy, spec: LockRun, episodes: int, iteration: int, purpose: str = "examine"
) -> Examination:
    """Play `episodes` episodes, other ones for every purpose."""
    env = CombinationLockVector(episodes, **lock_parameters(spec.lock))
    seed = Streams(spec.seed).integer(purpose, episodes, iteration)
    total, depth = np.zeros(episodes), np.zeros(episodes)
    for rows, lanes in lockstep(env, policy, spec.horizon, seed):
        total[lanes] += rows.reward
        depth += env.latent != BAD
    return Examination(episodes, float(total.mean()), float(depth.mean()))
