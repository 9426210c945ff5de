"""The subcommands of one run: start it, watch it, resume it."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from hyq.algorithms import ALGORITHMS, configure, setting_groups
from hyq.commands.report import report
from hyq.commands.watch import HYBRID, LOCK, RND, check_tensorboard, to_tensorboard, watch
from hyq.core.actions import ActionKind, action_kind
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear
from hyq.core.settings import encode_value, field_help, json_object
from hyq.core.terminal import Terminal
from hyq.data.spaces import spaces_of
from hyq.envs.make import kind_of_actions
from hyq.runs import lock, runner
from hyq.runs.lock_algorithms import LOCK_ALGORITHMS
from hyq.runs.lock_spec import LockRun
from hyq.runs.longer import lengthen
from hyq.runs.named_data import load
from hyq.runs.records import RunDirectory
from hyq.runs.spec import RunSpec

console = Terminal()


def run_lock(spec: tyro.conf.OmitArgPrefixes[LockRun], *, out: Path) -> None:
    """Train V-type Hy-Q, or a baseline, on the combination lock.

    Args:
        spec: What to run.
        out: New directory for the records, the learning curve and the checkpoints.
    """
    watch(lock.start(spec, out), console, LOCK)
    report(out, figure=out / "curve.png")


def train(words: list[str]) -> Callable[..., None]:
    """Train deep Hy-Q, Hy-SAC or a baseline on any Gymnasium environment.

    The options are those of the algorithm, with the preset's values as their defaults: they depend
    on the words of the command.
    """
    algorithm, preset = _option(words, "algorithm") or "hyq", _option(words, "preset") or "default"
    actions = _kind_of_actions(words)
    run_options = _run_options(actions)
    settings_options = _settings_options(algorithm, preset, actions)

    def command(
        run: tyro.conf.OmitArgPrefixes[run_options],  # type: ignore[valid-type]
        settings: tyro.conf.OmitArgPrefixes[settings_options],  # type: ignore[valid-type]
        *,
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
            check_tensorboard()
        options, usual = dataclasses.asdict(run), dataclasses.asdict(settings_options())
        if options["env"] is None:  # the default is not 0, so only the words tell a given one
            episodes = _option(words, "evaluation-episodes")
            runner.check_played(evaluation_episodes=episodes not in (None, "0"))
        options["env_parameters"] = json_object("env_parameters", options["env_parameters"])
        given = dataclasses.asdict(settings).items()
        spec = RunSpec(**options, settings={name: v for name, v in given if v != usual[name]})
        seconds = 60 * checkpoint_minutes
        progress = runner.start(
            spec, out, keep_checkpoint=keep_checkpoint, checkpoint_seconds=seconds
        )
        _watch(spec, progress, out, tensorboard)

    return command


def _kind_of_actions(words: list[str]) -> ActionKind:
    """Tell the kind of actions of the environment that the words of a command name."""
    named = _option(words, "actions")
    if named in ALGORITHMS:
        return named
    env, data = _option(words, "env"), _option(words, "data")
    if env is None:
        return "discrete" if data is None else action_kind(spaces_of(load(data))[1])
    parameters = json_object("env_parameters", _option(words, "env-parameters") or "{}")
    return kind_of_actions(env, _options_after(words, "wrappers"), parameters)


def _options_after(words: list[str], name: str) -> list[str]:
    """Return the words that follow an option, up to the next one."""
    after = words[words.index(f"--{name}") + 1 :] if f"--{name}" in words else []
    return list(itertools.takewhile(lambda word: not word.startswith("--"), after))


def _run_options(actions: ActionKind) -> type[Any]:
    """Return the fields of `RunSpec` that are options themselves, with their documentation."""
    defaults = {part.name: part.default for part in dataclasses.fields(RunSpec)}
    defaults |= {"env_parameters": "{}", "actions": actions}
    kinds = get_type_hints(RunSpec) | {"env_parameters": str}
    del defaults["settings"]
    return _options("RunOptions", {name: (kinds[name], RunSpec, v) for name, v in defaults.items()})


def _settings_options(algorithm: str, preset: str, actions: ActionKind) -> type[Any]:
    """Return the settings of an algorithm as options, with the preset's values as defaults."""
    configs = configure(algorithm, preset, actions=actions)
    parts: dict[str, tuple[Any, type[Any], Any]] = {}
    for name, group in setting_groups(algorithm, actions).items():
        kind, value = get_type_hints(group)[name], getattr(configs.get(group), name)
        if kind is PiecewiseLinear:
            kind, value = str, str(encode_value(value))
        parts[name] = kind, group, value
    return _options("Settings", parts)


def _options(title: str, parts: Mapping[str, tuple[Any, type[Any], Any]]) -> type[Any]:
    """Make a dataclass of fields of others: their type, where their help is, and their default."""
    fields: list[Any] = []
    for name, (kind, home, default) in parts.items():
        described: Any = Annotated[kind, tyro.conf.arg(help=field_help(home)[name])]
        fields.append((name, described, dataclasses.field(default=default)))
    return dataclasses.make_dataclass(title, fields, frozen=True)


def _option(words: list[str], name: str) -> str | None:
    """Look up an option before the others are known."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if word == f"--{name}":
            return value
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return None


def _watch(
    spec: RunSpec, progress: Iterator[runner.Progress], out: Path, tensorboard: bool = False
) -> None:
    if tensorboard:
        progress = to_tensorboard(progress, out / "tensorboard")
    settings = spec.configs.encoded()
    counter = "updates" if "updates" in settings else "online_steps"
    columns = RND if spec.algorithm == "rnd" else HYBRID
    watch(progress, console, columns, settings[counter], counter)
    report(out, figure=out / "curve.png")


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
        spec = RunSpec.decoded(manifest["spec"])
        _watch(spec, runner.resume(out, trust=trust), out, (out / "tensorboard").exists())
    elif manifest["experiment"] == "lock":
        watch(lock.resume(out), console, LOCK)
        report(out, figure=out / "curve.png")
    else:
        raise HyqError(f"{out} cannot be resumed: it is a run of {manifest['experiment']!r}")


def algorithms() -> None:
    """List the algorithms: those for the lock, and those for any environment."""
    console.print("hyq run lock --algorithm ...")
    for name, build in LOCK_ALGORITHMS.items():
        summary = (build.__doc__ or "").partition("\n")[0]
        console.print(f"  {name:<14} {summary}")
    for kind, known in ALGORITHMS.items():
        console.print(f"hyq train --algorithm ..., where actions are {kind}")
        for name, algorithm in known.items():
            console.print(f"  {name:<14} {algorithm.summary}")
