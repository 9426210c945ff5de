"""The `hyq` command: one table of verbs, each an ordinary function."""

import contextlib
import importlib
import io
import os
import re
import sys
import time

# One thread makes a run independent of the machine's core count, to the bit, and leaves the other
# cores to other runs. It has to be said before NumPy is loaded; a caller's own choice wins.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TimeElapsedColumn
from rich.table import Table

from hyq.algos.deep_baselines import DEEP_METHODS
from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.core.seeding import Streams
from hyq.core.types import Transitions
from hyq.data.episodes import Episodes
from hyq.envs.combination_lock import LockSpec
from hyq.experiments import deep, lock, rnd, runs, trainings
from hyq.experiments.deep import DeepRun
from hyq.experiments.deep_data import dataset_names, named_logs
from hyq.experiments.launch import Event, SuiteDirectory, launch, pending
from hyq.experiments.methods import METHODS
from hyq.experiments.montezuma_data import (
    data_export_montezuma,
    data_make_montezuma,
    data_render_montezuma,
    data_show_montezuma,
)
from hyq.experiments.montezuma_suite import (
    DATASETS,
    FILM_EPISODES,
    films_to_make,
    write_datasets,
)
from hyq.experiments.records import RunDirectory
from hyq.experiments.rnd import RNDRun
from hyq.experiments.runs import Run
from hyq.experiments.specs import LockRun
from hyq.experiments.suites import SUITES, Preset, Suite, ablation_suite, montezuma_suite
from hyq.experts.lock import LockData, lock_dataset
from hyq.models.learners import check_device
from hyq.report.ablations import report_ablations
from hyq.report.deep import deep_table, draw_deep_curves, watch_deep
from hyq.report.evaluate import evaluate
from hyq.report.figure import draw_suite
from hyq.report.film import film
from hyq.report.inspect import data_inspect
from hyq.report.lock import draw_learning_curves, result_table
from hyq.report.montezuma import report_montezuma
from hyq.report.page import write_page
from hyq.report.rnd import watch_rnd
from hyq.report.runs import RunResult, make_room
from hyq.report.suite import SuiteResult, suite_table
from hyq.report.tensorboard import check_tensorboard, to_tensorboard
from hyq.report.theory import reproduce_theory

console = Console()
RND_SUMMARY = "PPO with a bonus for what a random network's predictor does not know yet; no logs"
Directory = Annotated[Path, tyro.conf.Positional]


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
        watch(lock.start(LockRun(data=data), path))
    report(*runs.values(), picture=out / "curves.png")


def run_lock(spec: tyro.conf.OmitArgPrefixes[LockRun], *, out: Path) -> None:
    """Train V-type Hy-Q on the combination lock.

    Args:
        spec: What to run.
        out: New directory for the records, the learning curve and the checkpoints.
    """
    watch(lock.start(spec, out))
    report(out, picture=out / "curve.png")


def run_deep(
    spec: tyro.conf.OmitArgPrefixes[DeepRun], *, out: Path, tensorboard: bool = False
) -> None:
    """Train deep Hy-Q, or a baseline, on any Gymnasium environment with discrete actions.

    Args:
        spec: What to run.
        out: New directory for the records, the curve, the checkpoints, the best and last policy.
        tensorboard: Write TensorBoard event files too, under OUT/tensorboard.
    """
    check_device(spec.config.device)
    if tensorboard:
        check_tensorboard()
    _watch_deep(spec, deep.start(spec, out), out, tensorboard)


def run_rnd(
    spec: tyro.conf.OmitArgPrefixes[RNDRun], *, out: Path, tensorboard: bool = False
) -> None:
    """Train PPO with the bonus of random network distillation, without any logs.

    The online baseline for sparse rewards, on any Gymnasium environment with discrete actions:
    hyq run rnd --env hyq/Montezuma-v0 --preset cpu --online-steps 1000000 --out runs/rnd

    Args:
        spec: What to run.
        out: New directory for the records, the curve, the checkpoints and the last policy.
        tensorboard: Write TensorBoard event files too, under OUT/tensorboard.
    """
    check_device(spec.config.device)
    if tensorboard:
        check_tensorboard()
    _watch_rnd(spec, rnd.start(spec, out), out, tensorboard)


def _watch_rnd(
    spec: RNDRun, progress: Iterator[trainings.Progress], out: Path, tensorboard: bool = False
) -> None:
    if tensorboard:
        progress = to_tensorboard(progress, out / "tensorboard")
    watch_rnd(progress, spec, console)
    _report_deep([out], out / "curve.png")


def _watch_deep(
    spec: DeepRun, progress: Iterator[trainings.Progress], out: Path, tensorboard: bool = False
) -> None:
    if tensorboard:
        progress = to_tensorboard(progress, out / "tensorboard")
    watch_deep(progress, spec, console)
    _report_deep([out], out / "curve.png")


def methods() -> None:
    """List the methods: those for the lock, and those for any environment."""
    console.print("hyq run lock --method ...")
    for name, build in METHODS.items():
        summary = (build.__doc__ or "").partition("\n")[0]
        console.print(f"  [bold]{name:<14}[/] {summary}", highlight=False)
    console.print("hyq run deep --method ...")
    for name, method in DEEP_METHODS.items():
        console.print(f"  [bold]{name:<14}[/] {method.summary}", highlight=False)
    console.print("hyq run rnd")
    console.print(f"  [bold]{'rnd':<14}[/] {RND_SUMMARY}", highlight=False)


def data_list() -> None:
    """List the datasets that have a name, for 'hyq run deep --data'."""
    for name in dataset_names():
        console.print(f"  {name}", highlight=False)


def resume(out: Directory) -> None:
    """Go on with an interrupted run, bit for bit as if it had never stopped.

    Args:
        out: The run's directory.
    """
    progress = runs.resume(out)
    settings = RunDirectory.open(out).manifest
    if settings["experiment"] == "deep":
        spec = deep.deep_run(settings["spec"])
        _watch_deep(spec, progress, out, (out / "tensorboard").exists())  # type: ignore[arg-type]
    elif settings["experiment"] == "rnd":
        alone = rnd.rnd_run(settings["spec"])
        _watch_rnd(alone, progress, out, (out / "tensorboard").exists())  # type: ignore[arg-type]
    else:
        watch(progress)  # type: ignore[arg-type]
        report(out, picture=out / "curve.png")


def reproduce(
    suite: Annotated[Literal["lock", "briee", "deep", "coverage"], tyro.conf.Positional],
    *,
    out: Path | None = None,
    preset: Preset = "full",
    workers: int = os.cpu_count() or 1,
    retry: bool = False,
    ray: str | None = None,
) -> None:
    """Run a whole comparison, or go on with it, and write its figure, table and page.

    Args:
        suite: lock: every method on both datasets. briee: Hy-Q against BRIEE as the lock grows.
            deep: deep Hy-Q and the baselines on MountainCar, Acrobot and a key-door maze.
            coverage: deep Hy-Q on each dataset of Montezuma's Revenge, until it earns 2,500.
        out: Directory of the suite; where it exists already, only what is missing is run.
        preset: full has three or five replicates; quick takes minutes.
        workers: Runs at a time, one thread each.
        retry: Run again what failed before.
        ray: Run on a Ray cluster instead: its address, or 'local' to start one here.
    """
    _run_suite(
        SUITES[suite](preset), out or Path("runs") / f"{suite}-{preset}", workers, retry, ray
    )


def reproduce_montezuma(
    *,
    online_steps: int = 3_000_000,
    out: Path | None = None,
    workers: int = os.cpu_count() or 1,
    retry: bool = False,
    ray: str | None = None,
) -> None:
    """Compare Hy-Q with the baselines on Montezuma's Revenge, or go on with it; hours to days.

    Args:
        online_steps: Steps of every run that acts; the others make as many updates.
        out: Directory of the suite; where it exists already, only what is missing is run.
        workers: Runs at a time, one thread each.
        retry: Run again what failed before.
        ray: Run on a Ray cluster instead: its address, or 'local' to start one here.
    """
    if online_steps < 1:
        raise HyqError(f"online_steps must be at least 1, got {online_steps}")
    chosen = montezuma_suite(online_steps)
    _run_suite(chosen, out or Path("runs") / "montezuma", workers, retry, ray)


def reproduce_ablations(
    *,
    online_steps: int = 300_000,
    out: Path | None = None,
    workers: int = os.cpu_count() or 1,
    retry: bool = False,
) -> None:
    """Undo the settings that make Hy-Q learn Montezuma's Revenge on a CPU, one by one; hours.

    Args:
        online_steps: Steps of every run.
        out: Directory of the suite; where it exists already, only what is missing is run.
        workers: Runs at a time, one thread each.
        retry: Run again what failed before.
    """
    if online_steps < 1:
        raise HyqError(f"online_steps must be at least 1, got {online_steps}")
    chosen = ablation_suite(online_steps)
    _run_suite(chosen, out or Path("runs") / "ablations", workers, retry, None)


def _run_suite(chosen: Suite, out: Path, workers: int, retry: bool, ray: str | None) -> None:
    if workers < 1:
        raise HyqError(f"workers must be at least 1, got {workers}")
    directory = SuiteDirectory.prepare(out, chosen)
    todo = pending(directory, chosen, retry)
    if ray is None:
        events = launch(directory, todo, workers)
    else:
        events = _ray_launcher()(directory, todo, None if ray == "local" else ray)
    began = time.perf_counter()
    finished = watch_suite(directory, chosen, events)
    if finished:
        elapsed = time.perf_counter() - began
        busy = sum(directory.seconds(run) for run in finished)
        console.print(f"{len(finished)} runs, {busy:,.0f} s of work in {elapsed:,.0f} s")
    report_suite(directory.path)


def _ray_launcher() -> Callable[..., Iterator[Event | None]]:
    try:
        module = importlib.import_module("hyq.experiments.launch_ray")
    except ImportError:
        raise HyqError("--ray needs Ray: install it with pip install 'hyq[ray]'") from None
    launcher: Callable[..., Iterator[Event | None]] = module.launch_ray
    return launcher


def watch_suite(
    directory: SuiteDirectory, suite: Suite, events: Iterator[Event | None]
) -> list[Run]:
    """Show how many runs are done, what is under way, and every failure; return what finished."""
    newly: list[Run] = []
    finished = sum(directory.is_finished(run) for run in suite.runs)
    for run in suite.runs:
        if (error := directory.failure(run)) is not None:
            console.print(f"[red]failed before[/] {run.id}: {error.splitlines()[-1]} (--retry)")
    with Bar(*Bar.get_default_columns(), TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(suite.name, total=len(suite.runs), completed=finished)
        for event in events:
            if event is None:
                bar.update(task, description=_under_way(directory, suite))
                continue
            if event.outcome == "finished":
                newly.append(event.spec)
                bar.advance(task)
                bar.console.print(f"finished {event.spec.id}", highlight=False, soft_wrap=True)
            else:
                reason = (directory.failure(event.spec) or "its worker died").splitlines()[-1]
                bar.console.print(f"[red]{event.outcome}[/] {event.spec.id}: {reason}")
    return newly


def _under_way(directory: SuiteDirectory, suite: Suite) -> str:
    active = [
        f"{run.method} {row['online_samples']:,} samples, "
        f"return {row.get('eval_return', float('nan')):.2f}"
        for run in suite.runs
        if not directory.is_finished(run)
        and directory.failure(run) is None
        and (row := directory.progress(run)) is not None
    ]
    return "; ".join(active[:2]) or suite.name


def report_suite(path: Directory) -> None:
    """Write the figure and the page of a suite from its records, finished or not.

    Args:
        path: The suite's directory.
    """
    if read_json(path / "suite.json").get("suite") == "montezuma":
        _record_montezuma(path)
        report_montezuma(path, console)
        return
    if read_json(path / "suite.json").get("suite") == "ablations":
        report_ablations(path, console)
        return
    result = SuiteResult.read(path)
    draw_suite(result, path / "figure.png")
    write_page(result, path / "report.html", Streams(0).generator("report"))
    console.print(suite_table(result, Streams(0).generator("report")))
    console.print(f"figure: {path / 'figure.png'}   page: {path / 'report.html'}")


def _record_montezuma(path: Path) -> None:
    """Film the policies that have ended since the last report, and look at the data once."""
    with Bar(*Bar.get_default_columns(), TimeElapsedColumn(), console=console) as bar:
        if not (path / DATASETS).exists():
            task = bar.add_task("looking at the datasets")
            write_datasets(path, lambda done, all_: bar.update(task, completed=done, total=all_))
        for missing in films_to_make(path):
            task = bar.add_task(f"filming {missing.place.name}", total=FILM_EPISODES)
            missing.make(lambda done, task=task: bar.update(task, completed=done))  # type: ignore[misc]


def data_make_lock(
    kind: LockData,
    *,
    out: Path,
    horizon: int = 100,
    size: int = 500_000,
    seed: int = 0,
    anti_reward_probability: float = 0.5,
) -> None:
    """Make one of the paper's offline datasets for the combination lock, on disk.

    Args:
        kind: Optimal occupancy (random actions) or optimal trajectory (nearly all good ones).
        out: New directory for the dataset; about 1 KB a transition at horizon 100.
        horizon: Number of digits of the lock.
        size: Number of transitions.
        seed: Chooses the lock and the data; a run needs the same seed to be on the same lock.
        anti_reward_probability: Chance that a fall pays 0.1.
    """
    spec = LockSpec(
        horizon=horizon, anti_reward_probability=anti_reward_probability, instance_seed=seed
    )
    with Bar(console=console) as bar:
        task = bar.add_task(f"optimal {kind} data", total=horizon)
        made = lock_dataset(spec, kind, size, seed, lambda h: bar.update(task, completed=h + 1))
        made.save(out)
    data_show(out)


def data_show(path: Directory) -> None:
    """Check a dataset against its hashes and print what is in it.

    Args:
        path: The dataset's directory, or a name of 'hyq data list'.
    """
    logs = named_logs(str(path), seed=0)
    if isinstance(logs, Episodes):
        rows: Episodes | Transitions = logs
        ended, kind = logs.terminated, {"episodes": f"{len(logs.length):,}"}
    else:
        rows = logs.transitions
        ended, kind = rows.discount == 0, {"steps": str(logs.horizon)}
    table = Table(title=str(path), title_justify="left", show_header=False)
    for name, value in {
        "transitions": f"{len(logs):,}",
        **kind,
        "observation": f"{rows.observation.shape[1:]} {rows.observation.dtype}",
        "mean reward": f"{float(rows.reward.mean()):.4f}",
        "terminated": f"{float(ended.mean()):.2%}",
        **logs.provenance,
        "sha256": logs.digest(),
    }.items():
        table.add_row(name, str(value))
    console.print(table)


def report(
    *paths: Annotated[Path, tyro.conf.Positional], picture: Path = Path("curves.png")
) -> None:
    """Print a table of runs and draw their learning curves.

    Args:
        paths: The runs' directories.
        picture: Where to draw.
    """
    if not paths:
        raise HyqError("name at least one run's directory")
    kinds = {RunDirectory.open(path).manifest.get("experiment") for path in paths}
    if kinds <= {"deep", "rnd"}:
        _report_deep(paths, picture)
        return
    if kinds != {"lock"}:
        raise HyqError("report runs of one kind at a time: all on the lock, or all deep")
    make_room(picture)
    results = [RunResult.read(path) for path in paths]
    draw_learning_curves(results, picture)
    console.print(result_table(results))
    console.print(f"learning curve: {picture}")


def _report_deep(paths: Sequence[Path], picture: Path) -> None:
    make_room(picture)
    results = [RunResult.read(path) for path in paths]
    draw_deep_curves(results, picture)
    console.print(deep_table(results))
    console.print(f"learning curve: {picture}")


def watch(progress: Iterator[lock.Progress]) -> None:
    """Show a run as it goes on: a line an iteration, and a clock in between."""
    header = f"{'iter':>4} {'online samples':>15} {'return':>7} {'depth':>6}"
    console.print(f"[dim]{header}   residual off / on     mix   seconds[/]")
    with console.status("making the offline data, then collecting and fitting ..."):
        for update in progress:
            row = update.row
            console.print(
                f"{row['iteration']:4d} {row['online_samples']:15,d} {row['eval_return']:7.3f} "
                f"{row['depth']:6.1f}   {_cell(row, 'offline_residual'):>6} / "
                f"{_cell(row, 'online_residual'):<6}  {_cell(row, 'realised_offline_share'):>9} "
                f"{sum(row['seconds'].values()):8.1f}",
                highlight=False,
            )


def _cell(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.4f}" if name in row else "-"


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "run lock": run_lock,
    "run deep": run_deep,
    "run rnd": run_rnd,
    "resume": resume,
    "methods": methods,
    "reproduce theory": reproduce_theory,
    "reproduce montezuma": reproduce_montezuma,
    "reproduce ablations": reproduce_ablations,
    "reproduce": reproduce,
    "film": film,
    "report suite": report_suite,
    "report": report,
    "data make lock": data_make_lock,
    "data make montezuma": data_make_montezuma,
    "data show montezuma": data_show_montezuma,
    "data render montezuma": data_render_montezuma,
    "data export montezuma": data_export_montezuma,
    "data list": data_list,
    "data show": data_show,
    "data inspect": data_inspect,
    "evaluate": evaluate,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return its exit code."""
    if str(Path.cwd()) not in sys.path:
        # A script's path has no working directory, where users keep environments of their own
        # ('--env module:id'). It comes last, so that no file in it hides an installed package.
        sys.path.append(str(Path.cwd()))
    words = sys.argv[1:] if arguments is None else arguments
    verb = next((verb for verb in VERBS if words[: verb.count(" ") + 1] == verb.split()), None)
    try:
        if verb is None:
            return _no_verb(words)
        call = _parsed(verb, words[verb.count(" ") + 1 :])
        call()
    except HyqError as error:
        print(f"hyq: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "hyq: interrupted; 'hyq resume' goes on with a run from its last checkpoint, and a "
            "suite goes on when its command is given again",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # The reader went away, as `| head` does; nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parsed(verb: str, words: list[str]) -> Callable[[], Any]:
    """Bind a verb's arguments, or say in one line what is wrong with them."""
    bound: list[Callable[[], Any]] = []

    def bind(*args: Any, **kwargs: Any) -> None:
        bound.append(lambda: VERBS[verb](*args, **kwargs))

    bind.__wrapped__ = VERBS[verb]  # type: ignore[attr-defined]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            tyro.cli(bind, prog=f"hyq {verb}", args=words)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        # Tyro draws a box; keep its sentences.
        text = re.sub(r"[│╭╮╰╯─]+", " ", complaint.getvalue())
        raise HyqError(" ".join(text.split())) from None
    return bound[0]


def _no_verb(words: list[str]) -> int:
    if words == ["--version"]:
        console.print(version("hyq"), highlight=False)
        return 0
    if words and words[0] not in ("-h", "--help"):
        near = [verb for verb in VERBS if verb.split()[0] == words[0]] or list(VERBS)
        said = " ".join(words[:2]) if len(near) < len(VERBS) else words[0]
        raise HyqError(f"no verb {said!r}: choose from {', '.join(near)} (hyq --help)")
    console.print("hyq: one policy from logged data and live interaction together\n")
    for name, function in VERBS.items():
        summary = (function.__doc__ or "").splitlines()[0]
        console.print(f"  [bold]hyq {name:<22}[/] {summary}", highlight=False)
    console.print("\nEach verb explains its options with --help.")
    return 0
