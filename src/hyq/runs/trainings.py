"""How any training is recorded: judged now and then, written down, saved, and brought back.

A kind of run has a spec (`TrainingRun`), a training (`Trainable`) and a place where its state is
kept (`Checkpoint`); `record` does the rest, the same for all of them.
"""

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

import numpy as np
import tyro

from hyq.algos.hyq_dqn import Report
from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import Array, FloatArray
from hyq.envs.make import VectorEnv
from hyq.models.policy import DeepPolicy
from hyq.rollout import lanes_to_play, play
from hyq.runs.records import RunDirectory

CONFIRMING_EPISODES = 100
"""Fresh episodes that must confirm a threshold, so that no lucky evaluation counts."""


class Trainable(Protocol):
    """What is asked of a training that is recorded."""

    def run(self) -> Iterator[Report]:
        """Learn, and yield a report now and then."""
        ...

    def policy(self) -> DeepPolicy:
        """Return the policy of now, to keep."""
        ...


class Pictured(Protocol):
    """The settings that say how a policy looks at its environment."""

    @property
    def stack(self) -> int:
        """Frames that make one observation."""
        ...

    @property
    def shrink_by(self) -> int:
        """Factor by which frames are shrunk."""
        ...


Value = TypeVar("Value")
FromPreset = Annotated[Value | None, tyro.conf.arg(help_behavior_hint="(as in the preset)")]
"""A setting that a spec can leave to its preset."""

T = TypeVar("T", bound=Trainable)
T_contra = TypeVar("T_contra", bound=Trainable, contravariant=True)


class TrainingRun(Protocol[T_contra]):
    """What is asked of a spec whose training is recorded."""

    @property
    def env(self) -> str:
        """Gymnasium id of the environment."""
        ...

    @property
    def data(self) -> str | None:
        """The logs it learns from, if any."""
        ...

    @property
    def algorithm(self) -> str:
        """What learns."""
        ...

    @property
    def seed(self) -> int:
        """Chooses every random number of the run."""
        ...

    @property
    def evaluation_episodes(self) -> int:
        """Episodes played at every evaluation, on environments of their own; 0 for none."""
        ...

    @property
    def evaluate_every(self) -> int:
        """Records between two evaluations."""
        ...

    @property
    def threshold(self) -> float | None:
        """Mean return that counts as solved."""
        ...

    @property
    def stop_when_solved(self) -> bool:
        """Whether to end the run there."""
        ...

    @property
    def config(self) -> Pictured:
        """The settings of the training."""
        ...

    def lanes_of(self, count: int) -> VectorEnv:
        """Make `count` copies of the environment."""
        ...

    def is_over(self, report: Report) -> bool:
        """Tell whether a report is the last one."""
        ...

    def player(self, training: T_contra, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Return what plays when a policy is judged."""
        ...


class Checkpoint(Protocol[T_contra]):
    """Where the state of a training is kept."""

    def save(self, training: T_contra, about: Mapping[str, Any]) -> None:
        """Write the state, and with it what `about` says of the run."""
        ...

    def load(self, training: T_contra) -> dict[str, Any]:
        """Bring a new training to the newest state; return what was said of the run, if any."""
        ...


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after every report."""

    row: dict[str, Any]
    summary: dict[str, Any] | None
    """Set on the last one."""


def record(
    spec: TrainingRun[T],
    training: T,
    examination: VectorEnv | None,
    checkpoint: Checkpoint[T],
    directory: RunDirectory,
    began: float,
    checkpoint_seconds: float,
) -> Iterator[Progress]:
    """Train to the end, from the checkpoint if there is one: judge, record, save now and then."""
    with directory.only_writer():
        saved = checkpoint.load(training)
        judge = Judge(spec, training, examination, directory.path, saved)
        earlier = saved.get("elapsed", 0.0)
        last_saved = time.perf_counter()
        for report in training.run():
            row = _row(report, judge(report))
            directory.append(row)
            elapsed = earlier + time.perf_counter() - began
            summary = None
            due = time.perf_counter() - last_saved >= checkpoint_seconds
            if spec.is_over(report) or (judge.solved_at is not None and spec.stop_when_solved):
                summary = _summary(spec, judge, report, elapsed)
                training.policy().save(directory.path / "last")
                directory.finish(summary)
                due = directory.keeps_checkpoint
            if due:
                about = {**judge.state(), "elapsed": elapsed, "reports": report.number}
                checkpoint.save(training, about)
                last_saved = time.perf_counter()
            yield Progress(row, summary)
            if summary:
                return


def examination_lanes(spec: TrainingRun[Any]) -> VectorEnv | None:
    """Make the environments that policies are judged on, if any are.

    To be called before the training is made and before its run is locked: processes that are
    started later would wait for ever for PyTorch's threads, which do not outlive a fork, and would
    hold the lock as well.
    """
    episodes = spec.evaluation_episodes
    return spec.lanes_of(lanes_to_play(episodes)) if episodes else None


class Judge(Generic[T]):
    """Plays the policy on environments of its own, and keeps the best one seen."""

    def __init__(
        self,
        spec: TrainingRun[T],
        training: T,
        examination: VectorEnv | None,
        out: Path,
        saved: Mapping[str, Any],
    ) -> None:
        """Go on from what was judged before an interruption."""
        self._spec, self._training, self._out = spec, training, out
        self._examination = examination
        self.best: float | None = saved.get("best")
        self.last: float | None = saved.get("last")
        self.solved_at: int | None = saved.get("solved_at")
        self.recent: deque[float] = deque(saved.get("recent", ()), maxlen=100)
        """Returns of the newest training episodes."""

    def state(self) -> dict[str, Any]:
        """Return what to keep in a checkpoint."""
        return {
            "best": self.best,
            "last": self.last,
            "solved_at": self.solved_at,
            "recent": list(self.recent),
        }

    def __call__(self, report: Report) -> dict[str, Any]:
        """Judge the policy of a report where one is due: every so often, and at the end."""
        self.recent.extend(total for _, total, _ in report.episodes)
        judged: dict[str, Any] = {}
        if self.recent:
            judged["recent_return"] = float(np.mean(self.recent))
        spec = self._spec
        due = report.number % spec.evaluate_every == 0 or spec.is_over(report)
        if self._examination is None or not due:
            return judged
        returns = self._play(self._examination, spec.evaluation_episodes, "evaluate", report.number)
        self.last = float(returns.mean())
        judged["eval_return"] = self.last
        # Of equals the last one: it has learned from more.
        if self.best is None or self.last >= self.best:
            self.best = self.last
            self._training.policy().save(self._out / "best")
        if spec.threshold is not None and self.solved_at is None and self.last >= spec.threshold:
            fresh = self._play(self._examination, CONFIRMING_EPISODES, "confirm", report.number)
            judged["confirming_return"] = float(fresh.mean())
            if fresh.mean() >= spec.threshold:
                self.solved_at = report.online_steps
        return judged

    def _play(self, lanes: VectorEnv, episodes: int, name: str, number: int) -> FloatArray:
        config, streams = self._spec.config, Streams(self._spec.seed).below(name, number)
        return play(
            lanes,
            self._spec.player(self._training, streams.generator("explore")),
            episodes,
            streams,
            stack=config.stack,
            shrink_by=config.shrink_by,
        )


def _row(report: Report, judged: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "iteration": report.number,
        "online_steps": report.online_steps,
        "updates": report.updates,
        **judged,
        "episodes": report.episodes,
        **report.metrics,
        "seconds": dict(report.seconds),
    }


def _summary(
    spec: TrainingRun[T], judge: Judge[T], report: Report, elapsed: float
) -> dict[str, Any]:
    named = {name: getattr(spec, name) for name in ("algorithm", "env", "data", "seed")}
    return {
        **named,
        "solved": judge.solved_at is not None,
        "solved_at": judge.solved_at,
        "threshold": spec.threshold,
        "online_steps": report.online_steps,
        "updates": report.updates,
        "eval_return": judge.last,
        "peak_return": judge.best,
        "recent_return": float(np.mean(judge.recent)) if judge.recent else None,
        "wall_seconds": elapsed,
    }


def json_object(text: str) -> dict[str, Any]:
    """Read the parameters of an environment."""
    try:
        parameters = json.loads(text)
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise HyqError(f"env_parameters must be a JSON object, got {text!r}")
    return parameters


def check_watching(spec: TrainingRun[Any]) -> None:
    """Refuse a spec that could not be watched as it says."""
    if spec.seed < 0 or spec.evaluation_episodes < 0 or spec.evaluate_every < 1:
        raise HyqError("seed and evaluation_episodes must not be negative, nor the period 0")
    if spec.threshold is not None and not math.isfinite(spec.threshold):
        raise HyqError(f"a threshold must be a number, got {spec.threshold}")
    if spec.threshold is not None and not spec.evaluation_episodes:
        raise HyqError("a threshold is reached in evaluations: set evaluation_episodes too")
    if spec.stop_when_solved and spec.threshold is None:
        raise HyqError("stop_when_solved needs a threshold to say what solved means")


def known_settings(settings: Mapping[str, Any], spec: type[Any]) -> dict[str, Any]:
    """Return what a manifest holds as fields of a spec: lists were tuples there."""
    unknown = settings.keys() - {field.name for field in fields(spec)}
    if unknown:
        raise HyqError(
            f"the run has {', '.join(sorted(unknown))}, which this version of hyq does not know: "
            "use the version that its manifest names"
        )
    return {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}


def settings_given(spec: Any, settings: type[Any], also: Collection[str] = ()) -> dict[str, Any]:
    """Return what a spec says of the settings of its training, `also` others: what is not None."""
    known = {field.name for field in fields(settings)}.union(also)
    said = {field.name: getattr(spec, field.name) for field in fields(spec)}
    return {name: value for name, value in said.items() if name in known and value is not None}


def resolved(spec: TrainingRun[Any]) -> dict[str, Any]:
    """Spell out every setting of a training, whatever preset it came from, as JSON holds it."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(spec.config)))  # type: ignore[call-overload]
    return settings


def check_settings(out: Path, manifest: Mapping[str, Any], spec: TrainingRun[Any]) -> None:
    """Refuse to go on with a run whose preset means something else than when it began."""
    began, now = manifest.get("settings", {}), resolved(spec)
    changed = sorted(name for name in began if began[name] != now.get(name))
    if changed:
        raise HyqError(
            f"{out} began with other settings than this version of hyq has ({', '.join(changed)}): "
            "go on with the version it began with, or start anew"
        )


WATCHING = ("evaluation_episodes", "evaluate_every", "threshold", "stop_when_solved")
"""Fields of a spec that change what is looked at, not what is learned."""


def details(spec: Any, *named: str) -> str:
    """Spell out the fields of a spec that are not as by default, nor `named` already."""
    return "".join(
        f"-{field.name}={getattr(spec, field.name)}"
        for field in fields(spec)
        if field.name not in (*named, *WATCHING, "wrappers")
        and getattr(spec, field.name) != field.default
    )


LONGEST_NAME = 200
"""Characters; file systems stop at 255 bytes, and copies of a name want an ending."""


def as_file_name(text: str) -> str:
    """Replace what does not belong into the name of a directory, and what is too long for one."""
    name = "".join(c if c.isalnum() or c in "-=._" else "_" for c in text)
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - len(digest) - 1]}-{digest}"
