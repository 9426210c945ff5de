"""The `hyq` command: one table of verbs, each an ordinary function."""

import contextlib
import io
import os
import re
import sys

# One thread makes a run independent of the machine's core count, to the bit, and leaves the other
# cores to other runs. It has to be said before NumPy is loaded; a caller's own choice wins.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.data.dataset import Dataset
from hyq.envs.combination_lock import LockSpec
from hyq.experiments import lock
from hyq.experiments.methods import METHODS
from hyq.experiments.specs import LockRun
from hyq.experts.lock import LockData, lock_dataset
from hyq.report.lock import LockResult, draw_learning_curves, result_table

console = Console()
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


def methods() -> None:
    """List the methods that can be run on the lock."""
    for name, build in METHODS.items():
        summary = (build.__doc__ or "").splitlines()[0]
        console.print(f"  [bold]{name:<14}[/] {summary}", highlight=False)


def resume(out: Directory) -> None:
    """Go on with an interrupted run, bit for bit as if it had never stopped.

    Args:
        out: The run's directory.
    """
    watch(lock.resume(out))
    report(out, picture=out / "curve.png")


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
        path: The dataset's directory.
    """
    dataset = Dataset.load(path)
    rows = dataset.transitions
    table = Table(title=str(path), title_justify="left", show_header=False)
    for name, value in {
        "transitions": f"{len(dataset):,}",
        "steps": dataset.horizon,
        "observation": f"{rows.observation.shape[1:]} {rows.observation.dtype}",
        "mean reward": f"{float(rows.reward.mean()):.4f}",
        "terminated": f"{float((rows.discount == 0).mean()):.2%}",
        **dataset.provenance,
        "sha256": dataset.digest(),
    }.items():
        table.add_row(name, str(value))
    console.print(table)


def report(
    *runs: Annotated[Path, tyro.conf.Positional], picture: Path = Path("curves.png")
) -> None:
    """Print a table of runs and draw their learning curves.

    Args:
        runs: The runs' directories.
        picture: Where to draw.
    """
    if not runs:
        raise HyqError("name at least one run's directory")
    results = [LockResult.read(path) for path in runs]
    draw_learning_curves(results, picture)
    console.print(result_table(results))
    console.print(f"learning curve: {picture}")


def watch(progress: Iterator[lock.Progress]) -> None:
    """Show a run as it goes on: a line an iteration, and a clock in between."""
    console.print(
        "[dim]iteration  online samples   return    depth   residual off / on      mix   seconds[/]"
    )
    with console.status("making the offline data, then collecting and fitting ..."):
        for update in progress:
            row = update.row
            console.print(
                f"{row['iteration']:9d}  {row['online_samples']:14,d}  {row['eval_return']:7.3f}  "
                f"{row['depth']:7.1f}   {_cell(row, 'offline_residual'):>7} / "
                f"{_cell(row, 'online_residual'):<7} {_cell(row, 'realised_offline_share'):>7}  "
                f"{sum(row['seconds'].values()):8.1f}",
                highlight=False,
            )


def _cell(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.4f}" if name in row else "-"


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "run lock": run_lock,
    "resume": resume,
    "methods": methods,
    "report": report,
    "data make lock": data_make_lock,
    "data show": data_show,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return its exit code."""
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
            "hyq: interrupted; 'hyq resume DIR' goes on from the last whole iteration",
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
    if words and words[0] not in ("-h", "--help"):
        raise HyqError(f"no verb {words[0]!r}: choose from {', '.join(VERBS)} (hyq --help)")
    console.print("hyq: one policy from logged data and live interaction together\n")
    for name, function in VERBS.items():
        summary = (function.__doc__ or "").splitlines()[0]
        console.print(f"  [bold]hyq {name:<15}[/] {summary}", highlight=False)
    console.print("\nEach verb explains its options with --help.")
    return 0
