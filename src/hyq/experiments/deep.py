"""Runs of the deep methods on any Gymnasium environment: watched, recorded, killed, resumed."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hyq.algos.deep_baselines import DEEP_METHODS, configured
from hyq.algos.hyq_dqn import DeepConfig, Report, Training
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray
from hyq.data.logs import Logs
from hyq.envs.make import VectorEnv, make_lanes
from hyq.experiments.checkpoint import RingCheckpoint
from hyq.experiments.deep_data import named_logs
from hyq.experiments.records import RunDirectory
from hyq.models.policy import DeepPolicy
from hyq.rollout import play

CONFIRMING_EPISODES = 100
"""Fresh episodes that must confirm a threshold, so that no lucky evaluation counts."""


@dataclass(frozen=True)
class DeepRun:
    """One run of one deep method. Equal specs are the same run."""

    env: str
    """Gymnasium id of the environment; `module:id` imports a module first."""
    data: str | None = None
    """Directory of the logs, or a named dataset (see 'hyq data list'); none trains without."""
    method: str = "hyq"
    """What learns: see 'hyq methods'."""
    preset: str = "default"
    """Named settings to start from; every option below overrides one of them."""
    seed: int = 0
    """Chooses every random number of the run."""
    online_steps: int | None = None
    """Steps to take in the environment."""
    beta: str | None = None
    """Share of each minibatch that comes from the logs: a number, or knots '0:0.5, 1e5:0.2'."""
    mix: Literal["split", "coin"] | None = None
    """split: the exact share in every minibatch; coin: all or nothing, as the paper has it."""
    epsilon: str | None = None
    """Chance of a random action: a number or knots."""
    learning_rate: str | None = None
    """Of Adam: a number or knots."""
    importance: str | None = None
    """Exponent of the importance weights: a number or knots."""
    pretraining: int | None = None
    """Updates on the logs alone before the first step."""
    gamma: float | None = None
    """Discount factor."""
    n_value: int | None = None
    """Steps between two updates."""
    n_target: int | None = None
    """Steps between two updates of the target network."""
    batch_size: int | None = None
    """Transitions in a minibatch."""
    n_step: int | None = None
    """Rewards summed before bootstrapping, online; more than one is biased off-policy."""
    n_step_offline: int | None = None
    """The same for the logs."""
    loss: Literal["huber", "squared"] | None = None
    """Of the Bellman error."""
    double: bool | None = None
    """Double Q-learning."""
    value_range: tuple[float, float] | None = None
    """Bounds of the values, where they are known."""
    reward: Literal["raw", "signed-log"] | None = None
    """Scale of the rewards that are learned from."""
    priority_online: tuple[float, float] | None = None
    """Exponent and epsilon of prioritised replay; exponent 0 draws uniformly."""
    priority_offline: tuple[float, float] | None = None
    """The same for the logs."""
    buffer_size: int | None = None
    """Slots for online observations."""
    learning_starts: int | None = None
    """Steps before the first update."""
    lanes: int | None = None
    """Environments stepped together."""
    life_loss_terminates: bool | None = None
    """Let the value end where a life is lost."""
    log_end_terminates: bool | None = None
    """Let the value end where a logged episode was cut off."""
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    """Arithmetic of the network; auto takes bfloat16 where the processor has it."""
    device: str | None = None
    """Where the network lives: cpu, cuda, ..."""
    report_every: int | None = None
    """Steps between two records."""
    evaluation_episodes: int = 20
    """Greedy episodes played at every evaluation, on environments of their own; 0 for none."""
    evaluate_every: int = 1
    """Records between two evaluations."""
    evaluation_epsilon: float = 0.0
    """Chance of a random action when evaluating."""
    threshold: float | None = None
    """Mean return that counts as solved; its first confirmed evaluation is recorded."""
    stop_when_solved: bool = False
    """End the run there."""
    wrappers: tuple[str, ...] = ()
    """module:Class of wrappers around the environment, innermost first."""
    env_parameters: str = "{}"
    """Parameters of the environment, as a JSON object."""
    processes: bool = False
    """Step the environments in processes of their own."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is made."""
        if self.seed < 0 or self.evaluation_episodes < 0 or self.evaluate_every < 1:
            raise HyqError("seed and evaluation_episodes must not be negative, nor the period 0")
        _ = self.parameters, self.config

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the environment."""
        try:
            parameters = json.loads(self.env_parameters)
        except ValueError:
            parameters = None
        if not isinstance(parameters, dict):
            raise HyqError(f"env_parameters must be a JSON object, got {self.env_parameters!r}")
        return parameters

    @property
    def config(self) -> DeepConfig:
        """The settings of the training, with what the method changes about them."""
        known = {field.name for field in fields(DeepConfig)}
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in known and getattr(self, field.name) is not None
        }
        return configured(self.method, self.preset, **given)

    @property
    def id(self) -> str:
        """A name that tells this run from others of a suite."""
        named = ("env", "data", "method", "seed")
        watching = ("evaluation_episodes", "evaluate_every", "threshold", "stop_when_solved")
        details = "".join(
            f"-{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in (*named, *watching, "wrappers")
            and getattr(self, field.name) != field.default
        )
        data = self.data or "no-data"
        name = f"{self.method}-{self.env}-{data}{details}-s{self.seed}"
        return "".join(c if c.isalnum() or c in "-=._" else "_" for c in name)

    def lanes_of(self, count: int) -> VectorEnv:
        """Make `count` copies of the environment."""
        return make_lanes(
            self.env,
            count,
            wrappers=self.wrappers,
            processes=self.processes,
            **self.parameters,
        )

    def logs(self) -> Logs | None:
        """Load or make the logs."""
        return None if self.data is None else named_logs(self.data, self.seed)

    def training(self, logs: Logs | None) -> Training:
        """Make the training, checked and ready to run."""
        config = self.config
        return Training(
            config,
            self.lanes_of(config.lanes),
            logs,
            Streams(self.seed),
            DEEP_METHODS[self.method].objective(config),
        )


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every report."""

    row: dict[str, Any]
    summary: dict[str, Any] | None
    """Set on the last one."""


def start(spec: DeepRun, out: Path, checkpoint_seconds: float = 120.0) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    began = time.perf_counter()
    logs = spec.logs()
    training = spec.training(logs)
    manifest = {
        "experiment": "deep",
        "spec": asdict(spec),
        "seed": spec.seed,
        "dataset": _describe(logs),
    }
    return _run(spec, training, RunDirectory.create(out, manifest), began, checkpoint_seconds)


def resume(out: Path, checkpoint_seconds: float = 120.0) -> Iterator[Progress]:
    """Go on with a run that was interrupted, exactly where its last checkpoint left it."""
    directory = RunDirectory.open(out)
    if directory.summary is not None:
        raise HyqError(f"{out} is finished: its result is in {out / 'summary.json'}")
    manifest = directory.manifest
    spec = deep_run(manifest["spec"])
    began = time.perf_counter()
    logs = spec.logs()
    if _describe(logs) != manifest["dataset"]:
        raise HyqError(f"the offline data of {out} has changed since the run began")
    return _run(spec, spec.training(logs), directory, began, checkpoint_seconds)


def deep_run(settings: Mapping[str, Any]) -> DeepRun:
    """Make a spec from what a manifest holds, where tuples have become lists."""
    tupled: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()
    }
    return DeepRun(**tupled)


def _describe(logs: Logs | None) -> dict[str, Any] | None:
    if logs is None:
        return None
    return {"sha256": logs.digest(), "transitions": len(logs), "provenance": dict(logs.provenance)}


def _run(
    spec: DeepRun,
    training: Training,
    directory: RunDirectory,
    began: float,
    checkpoint_seconds: float,
) -> Iterator[Progress]:
    with directory.only_writer():
        checkpoint = RingCheckpoint(directory.checkpoint)
        saved = checkpoint.load(training)
        judge = Judge(spec, training, directory.path, saved)
        earlier = saved.get("elapsed", 0.0)
        last_saved = time.perf_counter()
        for report in training.run():
            row = _row(report, judge(report))
            directory.append(row)
            elapsed = earlier + time.perf_counter() - began
            finished = report.online_steps >= training.config.online_steps and (
                report.updates >= training.config.pretraining
            )
            summary = None
            if finished or (judge.solved_at is not None and spec.stop_when_solved):
                summary = _summary(spec, judge, report, elapsed)
                judge.policy().save(directory.path / "last")
                directory.finish(summary)
            elif time.perf_counter() - last_saved >= checkpoint_seconds:
                checkpoint.save(training, {**judge.state(), "elapsed": elapsed})
                last_saved = time.perf_counter()
            yield Progress(row, summary)
            if summary:
                return


class Judge:
    """Plays the policy on environments of its own, and keeps the best one seen."""

    def __init__(
        self, spec: DeepRun, training: Training, out: Path, saved: Mapping[str, Any]
    ) -> None:
        """Go on from what was judged before an interruption."""
        self._spec, self._training, self._out = spec, training, out
        self.best: float | None = saved.get("best")
        self.last: float | None = saved.get("last")
        self.solved_at: int | None = saved.get("solved_at")
        self.recent: deque[float] = deque(saved.get("recent", ()), maxlen=100)
        """Returns of the newest training episodes."""
        self._env: VectorEnv | None = None

    def state(self) -> dict[str, Any]:
        """Return what to keep in a checkpoint."""
        return {
            "best": self.best,
            "last": self.last,
            "solved_at": self.solved_at,
            "recent": list(self.recent),
        }

    def __call__(self, report: Report) -> dict[str, Any]:
        """Judge the policy of a report, where one is due."""
        self.recent.extend(total for _, total, _ in report.episodes)
        judged: dict[str, Any] = {}
        if self.recent:
            judged["recent_return"] = float(np.mean(self.recent))
        spec = self._spec
        if not spec.evaluation_episodes or report.number % spec.evaluate_every:
            return judged
        returns = self._play(spec.evaluation_episodes, "evaluate", report.number)
        self.last = float(returns.mean())
        judged["eval_return"] = self.last
        if self.best is None or self.last > self.best:
            self.best = self.last
            self.policy().save(self._out / "best")
        if spec.threshold is not None and self.solved_at is None and self.last >= spec.threshold:
            fresh = self._play(CONFIRMING_EPISODES, "confirm", report.number)
            judged["confirming_return"] = float(fresh.mean())
            if fresh.mean() >= spec.threshold:
                self.solved_at = report.online_steps
        return judged

    def _play(self, episodes: int, name: str, number: int) -> FloatArray:
        if self._env is None:
            self._env = self._spec.lanes_of(min(self._spec.evaluation_episodes, 16))
        config, streams = self._training.config, Streams(self._spec.seed).below(name, number)
        return play(
            self._env,
            self._policy_to_play(streams.generator("explore")),
            episodes,
            streams,
            stack=config.stack,
            shrink_by=config.shrink_by,
        )

    def _policy_to_play(self, rng: np.random.Generator) -> Callable[[Array], Array]:
        chance, actions = self._spec.evaluation_epsilon, self._training.actions
        if not chance:
            return self._training.greedy

        def nearly_greedy(observation: Array) -> Array:
            greedy = self._training.greedy(observation)
            explore = rng.random(len(greedy)) < chance
            return np.where(explore, rng.integers(actions, size=len(greedy)), greedy)

        return nearly_greedy

    def policy(self) -> DeepPolicy:
        """Return the policy of now."""
        return self._training.policy()


def _row(report: Report, judged: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "iteration": report.number,
        "online_samples": report.online_steps,
        "updates": report.updates,
        **judged,
        "episodes": report.episodes,
        **report.metrics,
        "seconds": dict(report.seconds),
    }


def _summary(spec: DeepRun, judge: Judge, report: Report, elapsed: float) -> dict[str, Any]:
    named = {name: getattr(spec, name) for name in ("method", "env", "data", "seed")}
    return {
        **named,
        "solved": judge.solved_at is not None,
        "solved_at": judge.solved_at,
        "threshold": spec.threshold,
        "online_samples": report.online_steps,
        "updates": report.updates,
        "eval_return": judge.last,
        "peak_return": judge.best,
        "recent_return": float(np.mean(judge.recent)) if judge.recent else None,
        "wall_seconds": elapsed,
    }
