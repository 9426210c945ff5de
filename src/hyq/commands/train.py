"""The subcommands of one run: start it, watch it, resume it."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro
from rich.console import Console

from hyq.algorithms import ALGORITHMS, configure, setting_groups
from hyq.commands.report import report
from hyq.commands.tensorboard import check_tensorboard, to_tensorboard
from hyq.commands.watch import LOCK, columns_of, watch
from hyq.core.errors import HyqError
from hyq.core.schedules import PiecewiseLinear
from hyq.core.settings import encode_value, field_help
from hyq.runs import lock, runner, runs
from hyq.runs.lock_algorithms import LOCK_ALGORITHMS
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import RunDirectory
from hyq.runs.spec import RunSpec

console = Console()


def demo() -> None:
    """Solve the paper's combination lock at H=100 from each of its two offline datasets."""
    number = 1
    while (out := Path("demo") / str(number)).exists():
        number += 1
    runs = {data: out / data for data in ("occupancy", "trajectory")}
    for data, path in runs.items():
        console.rule(
            f"V-type Hy-Q, H=100, 500,000 transitions of optimal {data} data", align="left"
        )
        watch(lock.start(LockRun(data=data), path), console, LOCK)
    report(*runs.values(), figure=out / "curves.png")


def run_lock(spec: tyro.conf.OmitArgPrefixes[LockRun], *, out: Path) -> None:
    """Train V-type Hy-Q, or a baseline, on the combination lock.

    Args:
        spec: What to run.
        out: New directory for the records, the learning curve and the checkpoints.
    """
    watch(lock.start(spec, out), console, LOCK)
    report(out, figure=out / "curve.png")


def train(words: list[str]) -> Callable[..., None]:
    """Train deep Hy-Q, or a baseline, on any Gymnasium environment with discrete actions.

    The options are those of the algorithm, with the preset's values as their defaults: they depend
    on the words of the command.
    """
    chosen = {name: _option(words, name) for name in ("algorithm", "preset")}
    algorithm, preset = chosen["algorithm"] or "hyq", chosen["preset"] or "default"
    run_options, settings_options = _run_options(), _settings_options(algorithm, preset)

    def command(
        run: tyro.conf.OmitArgPrefixes[run_options],  # type: ignore[valid-type]
        settings: tyro.conf.OmitArgPrefixes[settings_options],  # type: ignore[valid-type]
        *,
        out: Path,
        tensorboard: bool = False,
        keep_checkpoint: bool = False,
        checkpoint_minutes: float = 2.0,
    ) -> None:
        """Train deep Hy-Q, or a baseline, on any Gymnasium environment with discrete actions.

        Options below are those of the algorithm that is named with --algorithm, and defaults are
        those of its --preset.

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
        given = dataclasses.asdict(settings)
        usual = dataclasses.asdict(settings_options())
        spec = RunSpec(
            **{name: v for name, v in dataclasses.asdict(run).items() if name != "env_parameters"},
            env_parameters=_json_object(run.env_parameters),  # type: ignore[attr-defined]
            settings={name: v for name, v in given.items() if v != usual[name]},
        )
        progress = runner.start(
            spec,
            out,
            keep_checkpoint=keep_checkpoint,
            checkpoint_seconds=60 * checkpoint_minutes,
        )
        _watch(spec, progress, out, tensorboard)

    return command


def _run_options() -> type[Any]:
    """Return the fields of `RunSpec` that are options themselves, with their documentation."""
    help_texts = field_help(RunSpec)
    kinds = get_type_hints(RunSpec)
    parts: list[Any] = []
    for part in dataclasses.fields(RunSpec):
        if part.name == "settings":
            continue
        kind: Any = kinds[part.name]
        default = part.default
        if part.name == "env_parameters":
            kind, default = str, "{}"
        described: Any = Annotated[kind, tyro.conf.arg(help=help_texts[part.name])]
        parts.append((part.name, described, dataclasses.field(default=default)))
    return dataclasses.make_dataclass("RunOptions", parts, frozen=True)


def _settings_options(algorithm: str, preset: str) -> type[Any]:
    """Return the settings of an algorithm as options, with the preset's values as defaults."""
    configs = configure(algorithm, preset)
    parts: list[Any] = []
    for name, group in setting_groups(algorithm).items():
        kind: Any = get_type_hints(group)[name]
        value = getattr(configs.get(group), name)
        if kind is PiecewiseLinear:
            kind, value = str, str(encode_value(value))
        described: Any = Annotated[kind, tyro.conf.arg(help=field_help(group)[name])]
        parts.append((name, described, dataclasses.field(default=value)))
    return dataclasses.make_dataclass("Settings", parts, frozen=True)


def _option(words: list[str], name: str) -> str | None:
    """Look up an option before the others are known."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if word == f"--{name}":
            return value
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return None


def _json_object(text: str) -> dict[str, Any]:
    try:
        parameters = json.loads(text)
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise HyqError(f"env_parameters must be a JSON object, got {text!r}")
    return parameters


def _watch(
    spec: RunSpec, progress: Iterator[runner.Progress], out: Path, tensorboard: bool = False
) -> None:
    if tensorboard:
        progress = to_tensorboard(progress, out / "tensorboard")
    settings = spec.configs.encoded()
    counter = "updates" if "updates" in settings else "online_steps"
    watch(progress, console, columns_of(spec.algorithm), settings[counter], counter)
    report(out, figure=out / "curve.png")


def resume(
    out: Annotated[Path, tyro.conf.Positional],
    *,
    steps: int | None = None,
    into: Path | None = None,
) -> None:
    """Resume an interrupted run, bit for bit as if it had never stopped; or make one longer.

    A run that was started with --keep-checkpoint can continue after its end, in a directory of its
    own: hyq resume runs/car --steps 100000 --into runs/longer

    Args:
        out: The run's directory.
        steps: Online steps that the longer run takes, those taken already included; updates, where
            the algorithm never acts.
        into: New directory for the longer run.
    """
    if (steps is None) != (into is None):
        raise HyqError("to make a run longer give both --steps and --into")
    if steps is not None and into is not None:
        runs.lengthen(out, steps, into)
        out = into
    manifest = RunDirectory.open(out).manifest
    if manifest["experiment"] == "train":
        spec = RunSpec.decoded(manifest["spec"])
        _watch(spec, runner.resume(out), out, (out / "tensorboard").exists())
    else:
        watch(runs.resume(out), console, LOCK)
        report(out, figure=out / "curve.png")


def algorithms() -> None:
    """List the algorithms: those for the lock, and those for any environment."""
    console.print("hyq run lock --algorithm ...")
    for name, build in LOCK_ALGORITHMS.items():
        summary = (build.__doc__ or "").partition("\n")[0]
        console.print(f"  [bold]{name:<14}[/] {summary}", highlight=False)
    console.print("hyq train --algorithm ...")
    for name, algorithm in ALGORITHMS.items():
        console.print(f"  [bold]{name:<14}[/] {algorithm.summary}", highlight=False)
