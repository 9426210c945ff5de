"""Hy-Q on the combination lock: the paper's first experiment as one resumable run."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from hyq.algos.hyq_fqi import HyQConfig, HyQState, Metrics, greedy_policy, hyq
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.data.dataset import Dataset, check_fits, same_provenance
from hyq.envs.combination_lock import BAD, CombinationLockVector, LockSpec, lock_parameters
from hyq.experiments.checkpoint import load_state, save_state
from hyq.experiments.records import RunDirectory
from hyq.experts.lock import LockData, lock_dataset, lock_provenance
from hyq.models.block import BlockClass, BlockFunction
from hyq.rollout import Policy, lockstep

SOLVED_SHARE = 0.99
"""A lock is solved when the greedy policy earns this share of the optimal return."""
CONFIRMING_EPISODES = 1000
"""Fresh episodes that must confirm it, so that no lucky evaluation ends a run."""


@dataclass(frozen=True)
class LockRun:
    """One run of V-type Hy-Q on the combination lock."""

    data: str = "occupancy"
    """Offline data: 'occupancy' or 'trajectory' (made from the seed), or a dataset's directory."""
    horizon: int = 100
    """H, the number of digits of the lock; the paper uses 100."""
    seed: int = 0
    """Chooses the lock, the data made for it, and every random number of the run."""
    offline_samples: int = 500_000
    """Transitions of offline data to make (a directory brings its own)."""
    m_on: int = 10
    """Online tuples collected for every step in every iteration."""
    iterations: int = 100
    """Give up after this many iterations."""
    offline_share: float = 0.5
    """Weight of the offline data in every regression."""
    anti_reward_probability: float = 0.5
    """Chance that a fall pays 0.1: 0.5 as in the released setting, 1.0 as in the paper's text."""
    actions: int = 10
    """Number of actions."""
    noise: float = 0.1
    """Standard deviation of the observation noise."""
    dense: bool = False
    """Pay for every good step instead of for falling."""
    variable_latent: bool = False
    """Redraw the latent state from its own noisy code after each observation."""
    evaluation_episodes: int = 200
    """Episodes of the greedy policy played after every iteration; they do not count as samples."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is made."""
        for name in ("m_on", "evaluation_episodes"):
            if getattr(self, name) < 1:
                raise HyqError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise HyqError(f"seed must not be negative, got {self.seed}")
        if self.offline_samples < self.horizon:
            raise HyqError(
                f"offline_samples must be at least the horizon, {self.horizon}, "
                f"got {self.offline_samples}"
            )
        _ = self.lock, self.config

    @property
    def lock(self) -> LockSpec:
        """The environment."""
        return LockSpec(
            horizon=self.horizon,
            actions=self.actions,
            anti_reward_probability=self.anti_reward_probability,
            noise=self.noise,
            dense=self.dense,
            variable_latent=self.variable_latent,
            instance_seed=self.seed,
        )

    @property
    def config(self) -> HyQConfig:
        """The algorithm's settings."""
        return HyQConfig(
            iterations=self.iterations,
            collection="v-type",
            offline_share=self.offline_share,
            value_range=(0.0, self.lock.max_return),
        )

    @property
    def family(self) -> BlockClass:
        """The function class."""
        return BlockClass(self.lock.observation_dim, self.actions, v_max=self.lock.max_return)

    def dataset(self) -> Dataset:
        """Make or load the offline data, and see that it is of this lock."""
        if self.data in get_args(LockData):
            return lock_dataset(self.lock, self.data, self.offline_samples, self.seed)  # type: ignore[arg-type]
        if not Path(self.data).exists():
            raise HyqError(
                f"no dataset at {self.data!r}: give 'occupancy', 'trajectory' or a directory "
                "made by 'hyq data make lock'"
            )
        dataset = Dataset.load(Path(self.data))
        same_provenance(dataset, lock_provenance(self.lock))
        check_fits(dataset, CombinationLockVector(1, **lock_parameters(self.lock)), self.horizon)
        return dataset


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every iteration."""

    row: dict[str, Any]
    summary: dict[str, Any] | None
    """Set on the last one."""


def start(spec: LockRun, out: Path) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    dataset = spec.dataset()
    manifest = {
        "experiment": "lock",
        "spec": asdict(spec),
        "seed": spec.seed,
        "dataset": {"sha256": dataset.digest(), "provenance": dict(dataset.provenance)},
    }
    return _run(spec, dataset, RunDirectory.create(out, manifest))


def resume(out: Path) -> Iterator[Progress]:
    """Go on with a run that was interrupted, exactly where its last checkpoint left it."""
    directory = RunDirectory.open(out)
    if directory.summary is not None:
        raise HyqError(f"{out} is finished: its result is in {out / 'summary.json'}")
    manifest = directory.manifest
    spec = LockRun(**manifest["spec"])
    dataset = spec.dataset()
    if dataset.digest() != manifest["dataset"]["sha256"]:
        raise HyqError(f"the offline data of {out} has changed since the run began")
    return _run(spec, dataset, directory)


def _run(spec: LockRun, dataset: Dataset, directory: RunDirectory) -> Iterator[Progress]:
    checkpoint = directory.path / "checkpoint"
    parameters = lock_parameters(spec.lock)
    online = CombinationLockVector(spec.m_on, **parameters)
    streams = Streams(spec.seed)
    optimum = spec.lock.optimal_return
    with directory.only_writer():
        saved = load_state(checkpoint, spec.family, spec.horizon)
        saved_state, elapsed = saved or (None, 0.0)
        began = time.perf_counter() - elapsed
        for state, metrics in hyq(online, dataset, spec.family, spec.config, streams, saved_state):
            examined = Examination.of(state, spec, spec.evaluation_episodes, "evaluate")
            if solved := examined.mean_return >= SOLVED_SHARE * optimum:
                examined = Examination.of(state, spec, CONFIRMING_EPISODES, "confirm")
                solved = examined.mean_return >= SOLVED_SHARE * optimum
            row = _row(state, metrics, examined)
            directory.append(row)
            elapsed = time.perf_counter() - began
            summary = None
            if solved or state.iteration == spec.iterations:
                summary = {
                    "solved": bool(solved),
                    "eval_return": examined.mean_return,
                    "eval_episodes": examined.episodes,
                    "optimal_return": optimum,
                    "online_samples": state.online_samples,
                    "offline_samples": len(dataset),
                    "wall_seconds": elapsed,
                    "iterations": state.iteration,
                    "seed": spec.seed,
                    "horizon": spec.horizon,
                    "data": spec.data,
                    "anti_reward_probability": spec.anti_reward_probability,
                }
                directory.finish(summary)
            else:
                save_state(checkpoint, state, elapsed)
            yield Progress(row, summary)
            if summary:
                return


def _row(
    state: HyQState[BlockFunction], metrics: Metrics, examined: "Examination"
) -> dict[str, Any]:
    return {
        "iteration": state.iteration,
        "online_samples": metrics.online_samples,
        "eval_return": examined.mean_return,
        "depth": examined.depth,
        "offline_residual": metrics.offline_residual,
        "online_residual": metrics.online_residual,
        "realised_offline_share": metrics.realised_offline_share,
        "seconds": metrics.seconds,
    }


@dataclass(frozen=True)
class Examination:
    """How the greedy policy does on a lock of its own, with its own random numbers."""

    episodes: int
    mean_return: float
    depth: float
    """Steps, on average, before the first mistake."""

    @classmethod
    def of(
        cls, state: HyQState[BlockFunction], spec: LockRun, episodes: int, stream: str
    ) -> "Examination":
        """Play `episodes` episodes."""
        env = CombinationLockVector(episodes, **lock_parameters(spec.lock))
        policy: Policy = greedy_policy(state.functions)
        seed = Streams(spec.seed).integer(stream, state.iteration)
        total, depth = np.zeros(episodes), np.zeros(episodes)
        for rows, lanes in lockstep(env, policy, spec.horizon, seed):
            total[lanes] += rows.reward
            depth += env.latent != BAD
        return cls(episodes, float(total.mean()), float(depth.mean()))
