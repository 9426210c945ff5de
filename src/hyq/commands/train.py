"""The subcommands of one run: start it, watch it, resume it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from hyq.algos.deep_baselines import DEEP_METHODS, refuse_unused
from hyq.commands.report import report
from hyq.commands.tensorboard import check_tensorboard, to_tensorboard
from hyq.commands.watch import LOCK, columns_of, watch
from hyq.core.errors import HyqError
from hyq.models.torch_learner import check_device
from hyq.runs import deep, lock, rnd, runs, trainings
from hyq.runs.deep import DeepRun
from hyq.runs.methods import METHODS
from hyq.runs.records import RunDirectory
from hyq.runs.rnd import RNDRun
from hyq.runs.specs import LockRun

console = Console()
RND_SUMMARY = "PPO with a bonus for what a random network's predictor does not know yet; no logs"


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
    """Train V-type Hy-Q on the combination lock.

    Args:
        spec: What to run.
        out: New directory for the records, the learning curve and the checkpoints.
    """
    watch(lock.start(spec, out), console, LOCK)
    report(out, figure=out / "curve.png")


def run_deep(
    spec: tyro.conf.OmitArgPrefixes[DeepRun],
    *,
    out: Path,
    tensorboard: bool = False,
    keep_checkpoint: bool = False,
) -> None:
    """Train deep Hy-Q, or a baseline, on any Gymnasium environment with discrete actions.

    Args:
        spec: What to run.
        out: New directory for the records, the curve, the checkpoints, the best and last policy.
        tensorboard: Write TensorBoard event files too, under OUT/tensorboard.
        keep_checkpoint: Keep the last state, so that 'hyq resume' can make the run longer.
    """
    refuse_unused(spec.algorithm, spec.settings)
    _check_machine(spec, tensorboard)
    progress = deep.start(spec, out, keep_checkpoint=keep_checkpoint)
    _watch_deep(spec, progress, out, tensorboard)


def run_rnd(
    spec: tyro.conf.OmitArgPrefixes[RNDRun],
    *,
    out: Path,
    tensorboard: bool = False,
    keep_checkpoint: bool = False,
) -> None:
    """Train PPO with the bonus of random network distillation, without any logs.

    The online baseline for sparse rewards, on any Gymnasium environment with discrete actions:
    hyq run rnd --env hyq/Montezuma-v0 --preset cpu --online-steps 1000000 --out runs/rnd

    Args:
        spec: What to run.
        out: New directory for the records, the curve, the checkpoints and the last policy.
        tensorboard: Write TensorBoard event files too, under OUT/tensorboard.
        keep_checkpoint: Keep the last state, so that 'hyq resume' can make the run longer.
    """
    _check_machine(spec, tensorboard)
    progress = rnd.start(spec, out, keep_checkpoint=keep_checkpoint)
    _watch_deep(spec, progress, out, tensorboard)


def _check_machine(spec: DeepRun | RNDRun, tensorboard: bool) -> None:
    """Refuse what this machine does not have, before anything is made."""
    check_device(spec.config.device)
    if tensorboard:
        check_tensorboard()


def _watch_deep(
    spec: DeepRun | RNDRun,
    progress: Iterator[trainings.Progress],
    out: Path,
    tensorboard: bool = False,
) -> None:
    if tensorboard:
        progress = to_tensorboard(progress, out / "tensorboard")
    counter, total = "online_steps", spec.config.online_steps
    if isinstance(spec, DeepRun) and not total:
        counter, total = "updates", spec.config.pretraining
    watch(progress, console, columns_of(spec.algorithm), total, counter)
    report(out, figure=out / "curve.png")


def resume(
    out: Annotated[Path, tyro.conf.Positional],
    *,
    online_steps: int | None = None,
    into: Path | None = None,
) -> None:
    """Go on with an interrupted run, bit for bit as if it had never stopped; or make one longer.

    A run that was started with --keep-checkpoint goes on after its end, in a directory of its own:
    hyq resume runs/car --online-steps 100000 --into runs/longer

    Args:
        out: The run's directory.
        online_steps: Steps that the longer run takes, those taken already included.
        into: New directory for the longer run.
    """
    if (online_steps is None) != (into is None):
        raise HyqError("to make a run longer give both --online-steps and --into")
    if online_steps is not None and into is not None:
        runs.lengthen(out, online_steps, into)
        out = into
    progress = runs.resume(out)
    settings = RunDirectory.open(out).manifest
    if settings["experiment"] == "deep":
        spec = deep.deep_run(settings["spec"])
        _watch_deep(spec, progress, out, (out / "tensorboard").exists())  # type: ignore[arg-type]
    elif settings["experiment"] == "rnd":
        alone = rnd.rnd_run(settings["spec"])
        _watch_deep(alone, progress, out, (out / "tensorboard").exists())  # type: ignore[arg-type]
    else:
        watch(progress, console, LOCK)
        report(out, figure=out / "curve.png")


def methods() -> None:
    """List the methods: those for the lock, and those for any environment."""
    console.print("hyq run lock --algorithm ...")
    for name, build in METHODS.items():
        summary = (build.__doc__ or "").partition("\n")[0]
        console.print(f"  [bold]{name:<14}[/] {summary}", highlight=False)
    console.print("hyq run deep --algorithm ...")
    for name, algorithm in DEEP_METHODS.items():
        console.print(f"  [bold]{name:<14}[/] {algorithm.summary}", highlight=False)
    console.print("hyq run rnd")
    console.print(f"  [bold]{'rnd':<14}[/] {RND_SUMMARY}", highlight=False)
