"""Runs on the combination lock: any algorithm, evaluated, recorded, and resumed after a kill."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hyq.core.files import raising_damage
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset
from hyq.data.online import OnlineStore
from hyq.envs.combination_lock import BAD, CombinationLockVector
from hyq.fqi.base import State
from hyq.fqi.rollout import Policy, lockstep
from hyq.runs.checkpoint import Checkpoint, after_loading
from hyq.runs.lock_algorithms import build
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import Progress, RunDirectory, describe

SOLVED_SHARE = 0.99
"""A lock is solved when the policy's return is this share of the optimal one."""
CONFIRMING_EPISODES = 1000
"""Fresh episodes that must confirm it, so that no lucky evaluation ends a run."""
NAMED = ("algorithm", "data", "seed", "horizon", "anti_reward_probability")
"""Fields of the spec that the summary repeats."""


def start(spec: LockRun, out: Path) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    build(spec)  # raises before data is made
    RunDirectory.check_free(out)
    began = time.perf_counter()
    dataset = spec.dataset()
    manifest = {
        "experiment": "lock",
        "spec": spec.encoded(),
        "seed": spec.seed,
        "dataset": describe(dataset),
    }
    return _run(spec, dataset, RunDirectory.create(out, manifest), began)


def resume(out: Path) -> Iterator[Progress]:
    """Resume an interrupted run exactly where its last checkpoint left it."""
    directory = RunDirectory.unfinished(out)
    with raising_damage(out / "manifest.json"):
        spec = LockRun.decoded(directory.manifest["spec"])
    began = time.perf_counter()
    dataset = spec.dataset()
    directory.check_data(describe(dataset))
    return _run(spec, dataset, directory, began)


def _run(
    spec: LockRun, dataset: Dataset, directory: RunDirectory, began: float
) -> Iterator[Progress]:
    algorithm = build(spec)
    env = CombinationLockVector(spec.m_on, **vars(spec.lock))
    enough = SOLVED_SHARE * spec.lock.optimal_return
    with directory.only_writer():
        checkpoint = Checkpoint(directory.checkpoint)
        saved, earlier = None, 0.0
        if (found := checkpoint.load()) is not None:
            replaced, about, additions = found
            with raising_damage(checkpoint.path):
                saved = State(replaced, OnlineStore.rebuild(additions))
                earlier = float(about["elapsed"])
                directory.check_recorded(int(about["iteration"]))
        steps = algorithm.run(env, dataset, Streams(spec.seed), saved)
        for step in after_loading(steps, checkpoint.path) if saved else steps:
            episodes, at = spec.evaluation_episodes, step.iteration
            mean_return, depth = evaluate(step.policy, spec, episodes, at)
            if solved := mean_return >= enough:
                episodes = CONFIRMING_EPISODES
                mean_return, depth = evaluate(step.policy, spec, episodes, at, "confirm")
                solved = mean_return >= enough
            row = {
                "iteration": step.iteration,
                "online_steps": step.online_steps,
                "eval_return": mean_return,
                "depth": depth,
                **step.metrics,
                "seconds": dict(step.seconds),
            }
            directory.append(row)
            elapsed = earlier + time.perf_counter() - began
            spent = step.iteration == spec.iterations or step.online_steps >= spec.online_budget
            summary: dict[str, Any] | None = None
            if solved or spent:
                summary = {
                    "solved": bool(solved),
                    "eval_return": mean_return,
                    "eval_episodes": episodes,
                    "peak_return": max(row["eval_return"] or 0.0 for row in directory.rows),
                    "optimal_return": spec.lock.optimal_return,
                    "online_steps": step.online_steps,
                    "offline_samples": len(dataset),
                    "wall_seconds": elapsed,
                    "iterations": step.iteration,
                    **{name: getattr(spec, name) for name in NAMED},
                }
                directory.finish(summary, step.state.arrays)
            else:
                about = {"elapsed": elapsed, "iteration": step.iteration}
                online = step.state.online
                collected = len(online.batches) > len(checkpoint.parts)
                checkpoint.save(step.state.arrays, about, online.newest() if collected else {})
            yield Progress(row, summary)
            if summary:
                return


def evaluate(
    policy: Policy, spec: LockRun, episodes: int, iteration: int, stream: str = "examine"
) -> tuple[float, float]:
    """Play on a lock of its own; return the mean return and the steps before the first mistake.

    Episodes are other ones for every stream of random numbers. The name of the stream stays as it
    is: recorded results were made with it.
    """
    env = CombinationLockVector(episodes, **vars(spec.lock))
    seed = Streams(spec.seed).integer(stream, episodes, iteration)
    total, depth = np.zeros(episodes), np.zeros(episodes)
    for rows, envs in lockstep(env, policy, spec.horizon, seed):
        total[envs] += rows.reward
        depth += env.latent != BAD
    return float(total.mean()), float(depth.mean())
