"""The subcommands of one run: start it, watch it, resume it; on any environment or on the lock."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from hyq.algorithms import ALGORITHMS
from hyq.commands.data import data_show
from hyq.commands.report import report
from hyq.commands.watch import watch, watch_deep
from hyq.core.actions import ActionKind, action_kind
from hyq.core.errors import HyqError
from hyq.core.files import check_free, read_json
from hyq.core.settings import check_idle, encode, json_object
from hyq.core.terminal import Terminal, progress_bar
from hyq.data.spaces import spaces_of
from hyq.envs.combination_lock import Emission, LockSpec
from hyq.envs.make import kind_of_actions
from hyq.experts.lock import LockData, lock_dataset
from hyq.runs import kept, lock, runner
from hyq.runs.lock_algorithms import LOCK_ALGORITHMS
from hyq.runs.lock_spec import LockRun
from hyq.runs.longer import lengthen
from hyq.runs.named_data import load
from hyq.runs.records import RunDirectory
from hyq.runs.spec import RunSpec
from hyq.trackers import TensorBoard, check_installed

EVENTS = "tensorboard"
console = Terminal()


def train(words: list[str]) -> Callable[..., None]:
    """Train deep Hy-Q, Hy-SAC or a baseline on any Gymnasium environment.

    The options are those of the algorithm, with the preset's values as their defaults: they depend
    on the words of the command.
    """
    algorithm, preset = _option(words, "algorithm") or "hyq", _option(words, "preset") or "default"
    usual = RunSpec(algorithm=algorithm, preset=preset, actions=_kind_of_actions(words))
    configs = usual.configs
    groups = [(group.__name__, group, configs.get(group)) for group in configs.algorithm.groups]
    all_settings = dataclasses.make_dataclass("Settings", groups, frozen=True)

    def command(
        *,
        run: tyro.conf.OmitArgPrefixes[RunSpec] = usual,
        settings: tyro.conf.OmitArgPrefixes[all_settings],  # type: ignore[valid-type]
        out: Path,
        tensorboard: bool = False,
        keep_checkpoint: bool = False,
        checkpoint_minutes: float = 2.0,
    ) -> None:
        """Train deep Hy-Q, Hy-SAC or a baseline on any Gymnasium environment.

        Where the actions of --env are discrete, hyq is Hy-Q; where they are a bounded Box, it is
        Hy-SAC. Options below are those of the algorithm that is named with --algorithm for that
        kind of actions, and defaults are those of its --preset. Without --env, --actions
        continuous shows those for continuous actions.

        Args:
            run: What to run.
            settings: Settings of the algorithm.
            out: New directory for the records, the curve, checkpoints, the best and last policy.
            tensorboard: Write TensorBoard event files too, under OUT/tensorboard.
            keep_checkpoint: Keep the last state, so that 'hyq resume' can make the run longer.
            checkpoint_minutes: Time between two checkpoints.
        """
        if tensorboard:
            check_installed("tensorboard", "tensorboard")
        if run.env is None:  # the default is not 0, so only the words tell a given one
            episodes = _option(words, "evaluation-episodes")
            episodes = None if episodes == "0" else episodes
            check_idle("a run without an environment", evaluation_episodes=episodes)
        given = {n: v for group in vars(settings).values() for n, v in encode(group).items()}
        before = configs.encoded()
        changed = {name: value for name, value in given.items() if value != before[name]}
        spec = dataclasses.replace(run, settings=changed)
        progress = runner.start(
            spec, out, keep_checkpoint=keep_checkpoint, checkpoint_seconds=60 * checkpoint_minutes
        )
        watch_deep(progress, spec, console, TensorBoard(out / EVENTS) if tensorboard else None)
        _report(out)

    return command


def _kind_of_actions(words: list[str]) -> ActionKind:
    """Tell the kind of actions of the environment that the words of a command name."""
    named = _option(words, "actions")
    if named in ALGORITHMS:
        return named
    env, data = _option(words, "env"), _option(words, "data")
    if env is None:
        return "discrete" if data is None else action_kind(spaces_of(load(data))[1])
    after = words[words.index("--wrappers") + 1 :] if "--wrappers" in words else []
    wrappers = list(itertools.takewhile(lambda word: not word.startswith("--"), after))
    parameters = json_object(_option(words, "env-parameters") or "{}")
    return kind_of_actions(env, wrappers, parameters)


def _option(words: list[str], name: str) -> str | None:
    """Look up an option before the others are known."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if word == f"--{name}":
            return value
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return None


def _report(out: Path) -> None:
    """Say how a run ended, and where nothing was played what the data says of the policy."""
    report(out, figure=out / "curve.png")
    if "estimate" in (summary := read_json(out / "summary.json")):
        console.print(kept.said(summary["estimate"]))


def resume(
    out: Annotated[Path, tyro.conf.Positional],
    *,
    steps: int | None = None,
    into: Path | None = None,
    trust: bool = False,
) -> None:
    """Resume an interrupted run, bit for bit as if it had never stopped; or make one longer.

    A run that was started with --keep-checkpoint can continue after its end, in a directory of its
    own: hyq resume runs/car --steps 100000 --into runs/longer

    Args:
        out: The run's directory.
        steps: Online steps that the longer run takes, those taken already included; updates, where
            the algorithm never acts.
        into: New directory for the longer run.
        trust: Import the environment and the wrappers that the run of another user or machine
            names.
    """
    if (steps is None) != (into is None):
        raise HyqError("to make a run longer give both --steps and --into")
    if steps is not None and into is not None:
        lengthen(out, steps, into)
        out = into
    manifest = RunDirectory.open(out).manifest
    if manifest["experiment"] == "train":
        tracker = TensorBoard(out / EVENTS) if (out / EVENTS).exists() else None
        spec = RunSpec.decoded(manifest["spec"])
        watch_deep(runner.resume(out, trust=trust), spec, console, tracker)
    elif manifest["experiment"] == "lock":
        watch(lock.resume(out), console)
    else:
        raise HyqError(f"{out} cannot be resumed: it is a run of {manifest['experiment']!r}")
    _report(out)


def run_lock(spec: tyro.conf.OmitArgPrefixes[LockRun], *, out: Path) -> None:
    """Train V-type Hy-Q, or a baseline, on the combination lock.

    Args:
        spec: What to run.
        out: New directory for the records, the learning curve and the checkpoints.
    """
    watch(lock.start(spec, out), console)
    report(out, figure=out / "curve.png")


def data_make_lock(
    kind: LockData,
    *,
    out: Path,
    horizon: int = 100,
    size: int = 500_000,
    seed: int = 0,
    anti_reward_probability: float = 0.5,
    emission: Emission = "shared",
) -> None:
    """Make one of the paper's offline datasets for the combination lock, on disk.

    Args:
        kind: Optimal occupancy (random actions) or optimal trajectory (nearly all good ones).
        out: New directory for the dataset; about 1 KB a transition at horizon 100.
        horizon: Number of digits of the lock.
        size: Number of transitions.
        seed: Chooses the lock and the data; a run needs the same seed to be on the same lock.
        anti_reward_probability: Chance that a fall pays 0.1.
        emission: How observations show latent states: see 'hyq run lock'.
    """
    check_free(out)  # before the data is made, which takes a while
    spec = LockSpec(
        horizon=horizon,
        anti_reward_probability=anti_reward_probability,
        emission=emission,
        instance_seed=seed,
    )
    with progress_bar(f"optimal {kind} data", horizon) as update:
        lock_dataset(spec, kind, size, seed, lambda h: update(h + 1)).save(out)
    data_show(out)


def algorithms() -> None:
    """List the algorithms: those for the lock, and those for any environment."""
    console.print("hyq run lock --algorithm ...")
    for name, (_, summary) in LOCK_ALGORITHMS.items():
        console.print(f"  {name:<14} {summary}")
    for kind, known in ALGORITHMS.items():
        console.print(f"hyq train --algorithm ..., where actions are {kind}")
        for name, algorithm in known.items():
            console.print(f"  {name:<14} {algorithm.summary}")
