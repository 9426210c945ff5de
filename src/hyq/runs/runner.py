"""The one way that a deep run happens: built, trained, evaluated, recorded, saved, resumed.

The command and `hyq.train` both come here. Without a directory nothing is written.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from hyq.build import Custom, build
from hyq.collector import PreprocessingConfig, VectorEnv, evaluate, evaluation_envs
from hyq.core.actions import Actions
from hyq.core.errors import HyqError
from hyq.core.files import raising_damage
from hyq.core.seeding import Streams
from hyq.core.trees import Tree
from hyq.core.trust import Trust, check_trusted, sign
from hyq.core.types import Array, FloatArray
from hyq.data.dataset import Dataset
from hyq.data.spaces import spaces_of
from hyq.envs.make import EnvFactory, make_vector_env
from hyq.policy import Policy, plain_network
from hyq.runs import kept, records
from hyq.runs.checkpoint import TrainingCheckpoint, after_loading
from hyq.runs.named_data import fitting, load
from hyq.runs.process import interruptible, torch_threads
from hyq.runs.records import RunDirectory, describe
from hyq.runs.spec import RunSpec, check_effects
from hyq.trainer import OnlineConfig, Report

CONFIRMING_EPISODES = 100
"""Fresh episodes that must confirm a threshold, so that no lucky evaluation counts."""
RECENT = 100
"""Training episodes whose mean is reported."""


@dataclass(frozen=True)
class Objects(Custom):
    """Python objects in place of what a spec names; they are given again to resume."""

    env: EnvFactory | VectorEnv | None = None
    """A function that makes the environment, or a vector environment."""
    evaluation_env: VectorEnv | None = None
    """Where to evaluate, if `env` is a vector environment."""
    dataset: Dataset | None = None

    def described(self) -> dict[str, str]:
        """Name the objects for the manifest."""
        given = {"data" if name == "dataset" else name: v for name, v in vars(self).items()}
        return {
            name: f"{getattr(value, '__module__', '')}:"
            + getattr(value, "__qualname__", type(value).__qualname__)
            for name, value in given.items()
            if value is not None
        }


@dataclass(frozen=True)
class Progress(records.Progress):
    """What a callback sees after every record."""

    policy: Policy
    """The best policy that was evaluated; without evaluations, the newest."""


def start(
    spec: RunSpec,
    out: Path | None = None,
    objects: Objects = Objects(),
    *,
    checkpoint_seconds: float = 120.0,
    keep_checkpoint: bool = False,
) -> Iterator[Progress]:
    """Run a spec, recorded in the new directory `out` if one is given.

    Everything that can be checked is checked before this returns.
    """
    if spec.save_experience and (out is None or not spec.configs.has(OnlineConfig)):
        raise HyqError(
            "save_experience keeps the replay buffer's transitions in the run's directory: give "
            "out, and an algorithm that acts and replays"
        )
    check_effects(spec, objects.env or spec.env)
    if not checkpoint_seconds >= 0:
        raise HyqError(f"the time between checkpoints must not be {checkpoint_seconds:g} seconds")
    if out is not None:
        RunDirectory.check_free(out)
    run = _Run(spec, objects)
    directory = None
    if out is not None:
        manifest = {
            "experiment": "train",
            "spec": spec.encoded(),
            "signature": sign(spec.code),
            "settings": spec.configs.encoded(),
            "objects": objects.described(),
            "seed": spec.seed,
            "keep_checkpoint": keep_checkpoint,
            "dataset": run.described_data,
        }
        directory = RunDirectory.create(out, manifest)
    return run.record(directory, checkpoint_seconds)


def resume(
    out: Path,
    objects: Objects = Objects(),
    *,
    checkpoint_seconds: float = 120.0,
    trust: Trust = False,
) -> Iterator[Progress]:
    """Resume an interrupted run exactly where its last checkpoint left it.

    A run that another user or machine made imports code of its own only where that is trusted.
    """
    directory = RunDirectory.unfinished(out)
    manifest = directory.manifest
    with raising_damage(out / "manifest.json"):
        spec = RunSpec.decoded(manifest["spec"])
        given: dict[str, str] = dict(manifest["objects"])
        check_settings(out, manifest, spec)
    check_trusted(spec.code, out, manifest.get("signature"), trust)
    missing = given.keys() - objects.described().keys()
    if missing:
        named = ", ".join(f"{name} ({given[name]})" for name in sorted(missing))
        raise HyqError(
            f"{out} was started from Python with its own {named}: resume it with hyq.resume(path, "
            f"{', '.join(f'{name}=...' for name in sorted(missing))})"
        )
    run = _Run(spec, objects)
    directory.check_data(run.described_data)
    return run.record(directory, checkpoint_seconds)


def check_settings(out: Path, manifest: Mapping[str, Any], spec: RunSpec) -> None:
    """Raise where a preset means something else than when the run began."""
    began, now = manifest["settings"], spec.configs.encoded()
    changed = sorted(name for name in began.keys() | now.keys() if began.get(name) != now.get(name))
    if changed:
        raise HyqError(
            f"{out} began with other settings than this version of hyq has ({', '.join(changed)}): "
            "resume it with the version it began with, or start anew"
        )


class _Run:
    """A run that is ready to go: environments, data and training, all checked."""

    def __init__(self, spec: RunSpec, objects: Objects) -> None:
        self.spec, self._opened = spec, ExitStack()
        self._held_out: Dataset | None = None
        self._began = time.perf_counter()
        try:
            self._build(objects)
        except BaseException:
            self._opened.close()
            raise

    def _build(self, objects: Objects) -> None:
        spec, configs = self.spec, self.spec.configs
        about = configs.algorithm
        given = spec.data if objects.dataset is None else objects.dataset
        if given is not None and not about.takes_data:
            raise HyqError(f"{spec.algorithm} does not use offline data: leave it out")
        self._is_alone = spec.env is None and objects.env is None
        if self._is_alone and about.acts:
            raise HyqError(
                f"{spec.algorithm} acts: name an environment, or learn from data alone with bc, "
                "cql or iql"
            )
        self.network = objects.network
        self.evaluation_episodes = 0 if self._is_alone else spec.evaluation_episodes
        with fitting(given, spec.wrappers):
            # Environments come first: those in processes are forked, and PyTorch's threads do not
            # outlive a fork. And they may raise, where data may take minutes to load.
            env, self._evaluation = self._environments(objects)
            dataset = load(given, spec.seed) if isinstance(given, str) else given
            self.described_data = describe(dataset)
            if env is not None:
                self._spaces = env.single_observation_space, env.single_action_space
            elif dataset is not None:
                self._spaces = spaces_of(dataset)
                dataset, self._held_out = kept.held_out(dataset, spec.seed)
            self.training = build(
                configs, env, dataset, Streams(spec.seed), spaces=self._spaces, custom=objects
            )
        if spec.start_from is not None:
            kept.load_networks(Path(spec.start_from), self.training)
        if self.is_over():
            raise HyqError("nothing to learn: give online_steps, or data and pretraining")
        self._preprocessing: PreprocessingConfig = configs.get(PreprocessingConfig)

    def _environments(self, objects: Objects) -> tuple[VectorEnv | None, VectorEnv | None]:
        """Return where to act and where to evaluate; None where data is all there is."""
        spec, episodes = self.spec, self.evaluation_episodes
        num_envs = int(spec.configs.encoded().get("num_envs", 1))  # those that never act have none
        given = objects.env or spec.env
        if given is None:
            return None, None
        if isinstance(given, gym.vector.VectorEnv):
            if spec.configs.algorithm.acts and num_envs != given.num_envs:
                raise HyqError(f"set num_envs={given.num_envs}, as the vector environment has")
            if episodes and objects.evaluation_env is None:
                raise HyqError(
                    "evaluations need environments of their own: give evaluation_env, a function "
                    "that makes the environment in place of a vector of them, or set "
                    "evaluation_episodes to 0"
                )
            return given, objects.evaluation_env

        def make(count: int) -> VectorEnv:
            how: dict[str, Any] = {"wrappers": spec.wrappers, "processes": spec.processes}
            made = make_vector_env(given, count, **how, **dict(spec.env_parameters))
            return self._opened.enter_context(closing(made))

        return make(num_envs), make(evaluation_envs(episodes)) if episodes else None

    def policy(self, score: float | None = None) -> Policy:
        """Return the policy of now, to keep."""
        names = ("algorithm", "env", "wrappers", "env_parameters", "data", "seed")
        spec = self.spec.encoded()
        about = {name: spec[name] for name in names} | {
            "dataset": (self.described_data or {}).get("sha256"),
            "return": score,
            "signature": sign(self.spec.code),
        }
        network = plain_network(self.training.policy_network())
        return Policy(network, *self._spaces, self._preprocessing, about)

    def record(
        self, directory: RunDirectory | None, checkpoint_seconds: float
    ) -> Iterator[Progress]:
        """Train to the end, from the checkpoint if there is one."""
        writer = directory.only_writer() if directory else nullcontext()
        threads = self.spec.configs.encoded().get("threads", 1)
        with self._opened, torch_threads(threads), interruptible() as interrupted, writer:
            checkpoint = TrainingCheckpoint(directory.checkpoint) if directory else None
            saved = checkpoint.load(self.training) if checkpoint else {}
            if directory:
                with raising_damage(directory.checkpoint):
                    directory.check_recorded(int(saved.get("reports", 0)))
            self._began -= saved.get("elapsed", 0.0)
            evaluator = _Evaluator(self, directory, saved)
            last_saved = time.perf_counter()
            if directory and evaluator.is_over():
                # It was killed between its last checkpoint and its summary.
                row = directory.rows[-1]
                yield Progress(row, self._finished(directory, evaluator), evaluator.policy)
                return
            reports = self.training.run(interrupted)
            if checkpoint and saved:
                reports = after_loading(reports, checkpoint.path)
            for report in reports:
                row = {
                    "iteration": report.number,
                    "online_steps": report.online_steps,
                    "updates": report.updates,
                    **evaluator(report),
                    "episodes": report.episodes,
                    **report.metrics,
                    "seconds": dict(report.seconds),
                }
                over = evaluator.is_over()
                if directory:
                    directory.append(row)
                due = time.perf_counter() - last_saved >= checkpoint_seconds
                if directory and checkpoint and (directory.keeps_checkpoint if over else due):
                    checkpoint.save(self.training, evaluator.state(report.number))
                    last_saved = time.perf_counter()
                summary = self._finished(directory, evaluator) if over else None
                yield Progress(row, summary, evaluator.policy)
                if over:
                    return
            if directory and checkpoint:  # only an interruption ends the loop before it is over
                checkpoint.save(self.training, evaluator.state(len(directory.rows)))
            raise KeyboardInterrupt

    def elapsed(self) -> float:
        """Count the seconds that the run has taken, before interruptions too."""
        return time.perf_counter() - self._began

    def _finished(self, directory: RunDirectory | None, evaluator: "_Evaluator") -> dict[str, Any]:
        """Keep what was learned, and say how the run ended."""
        spec, training = self.spec, self.training
        policy = self.policy(evaluator.last)
        if directory:
            policy.save(directory.path / "last")
            kept.save_networks(directory.path, training)
            if spec.save_experience and training.buffer is not None:
                kept.save_experience(directory.path, spec, training, self._spaces)
        estimate = kept.estimate(policy, self._held_out, spec.seed) if self._is_alone else None
        summary = {**evaluator.summary(), **({"estimate": estimate} if estimate else {})}
        if directory:
            directory.finish(summary)
        return summary

    def is_over(self) -> bool:
        """Tell whether all updates, or all steps, have been taken."""
        training, (counter, total) = self.training, self.spec.length
        waits = training.updates < self.spec.configs.encoded().get("pretraining", 0)
        return getattr(training, counter) >= total and not waits

    def play(self, episodes: int, name: str, number: int) -> FloatArray:
        """Evaluate the policy of now over some episodes."""
        assert self._evaluation is not None
        streams = Streams(self.spec.seed).below(name, number)
        rng, chance = streams.generator("explore"), self.spec.evaluation_epsilon
        act = self.training.actor(rng)
        actions = Actions(self._spaces[1])

        def nearly_greedy(observation: Tree) -> Array:
            greedy = act(observation)
            explore = rng.random(len(greedy)) < chance
            anything = actions.random(len(greedy), rng)
            return np.where(explore.reshape(-1, *[1] * (greedy.ndim - 1)), anything, greedy)

        chosen = nearly_greedy if chance else act
        return evaluate(self._evaluation, chosen, episodes, streams, self._preprocessing)


class _Evaluator:
    """Plays the policy now and then, and keeps the best one seen."""

    def __init__(self, run: _Run, directory: RunDirectory | None, saved: Mapping[str, Any]) -> None:
        self._run, self._directory = run, directory
        self.best: float | None = saved.get("best")
        self.last: float | None = saved.get("last")
        self.solved_at: int | None = saved.get("solved_at")
        self.recent: deque[float] = deque(saved.get("recent", ()), maxlen=RECENT)
        """Returns of the newest training episodes."""
        self._best_policy: Policy | None = None
        if self.best is not None and directory is not None:
            self._best_policy = Policy.load(directory.path / "best", run.network)

    @property
    def policy(self) -> Policy:
        """The best policy that was evaluated; without evaluations, the newest."""
        return self._best_policy or self._run.policy()

    def is_over(self) -> bool:
        """Tell whether the run has come to its end, or to where it is to stop."""
        solved = self.solved_at is not None and self._run.spec.stop_when_solved
        return solved or self._run.is_over()

    def state(self, reports: int) -> dict[str, Any]:
        """Return what to keep in a checkpoint about the run."""
        found = {name: getattr(self, name) for name in ("best", "last", "solved_at")}
        recent = list(self.recent)
        return {**found, "recent": recent, "elapsed": self._run.elapsed(), "reports": reports}

    def __call__(self, report: Report) -> dict[str, Any]:
        """Evaluate where it is due: every so often, and at the end."""
        self.recent.extend(total for _, total, _ in report.episodes)
        found: dict[str, Any] = {}
        if self.recent:
            found["recent_return"] = float(np.mean(self.recent))
        run, spec = self._run, self._run.spec
        due = run.is_over() or report.number % spec.evaluate_every == 0
        if not (due and run.evaluation_episodes):
            return found
        returns = run.play(run.evaluation_episodes, "evaluate", report.number)
        self.last = float(returns.mean())
        found |= {"eval_return": self.last, "eval_returns": returns.tolist()}
        # Of equals the last one: it has learned from more.
        if self.best is None or self.last >= self.best:
            self.best, self._best_policy = self.last, run.policy(self.last)
            if self._directory:
                self._best_policy.save(self._directory.path / "best")
        if spec.threshold is not None and self.solved_at is None and self.last >= spec.threshold:
            fresh = run.play(CONFIRMING_EPISODES, "confirm", report.number)
            found["confirming_return"] = float(fresh.mean())
            if fresh.mean() >= spec.threshold:
                self.solved_at = report.online_steps
        return found

    def summary(self) -> dict[str, Any]:
        """Say how a run ended."""
        spec, training = self._run.spec, self._run.training
        return {
            **{name: getattr(spec, name) for name in ("algorithm", "env", "data", "seed")},
            "solved": self.solved_at is not None,
            "solved_at": self.solved_at,
            "threshold": spec.threshold,
            "online_steps": training.online_steps,
            "updates": training.updates,
            "eval_return": self.last,
            "peak_return": self.best,
            "recent_return": float(np.mean(self.recent)) if self.recent else None,
            "wall_seconds": self._run.elapsed(),
        }
