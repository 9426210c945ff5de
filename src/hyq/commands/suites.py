"""The subcommands of whole comparisons: run what is missing, then write the figure and the page."""

import importlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hyq.commands.report import report_suite
from hyq.core.errors import HyqError
from hyq.core.settings import check_idle
from hyq.core.terminal import Terminal, progress_bar
from hyq.report.theory import report_theory
from hyq.runs import theory
from hyq.runs.launch import Event, Processes, SuiteDirectory, launch, pending
from hyq.runs.suites import SUITES, SUITES_BY_STEPS, Preset, Run, Suite

console = Terminal()


@dataclass(frozen=True)
class Launch:
    """Where and how a suite runs."""

    out: Path | None = None
    """Directory of the suite; where it exists already, only what is missing is run."""
    workers: int | None = None
    """Runs at a time, one thread each; as many as there are cores, if not given."""
    retry: bool = False
    """Run again what failed before."""
    ray: str | None = None
    """Run on a Ray cluster instead: its address, or 'local' to start one here."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise HyqError(f"workers must be at least 1, got {self.workers}")
        if self.ray is not None:
            check_idle("a Ray cluster", workers=self.workers)


Options = tyro.conf.OmitArgPrefixes[Launch]


def reproduce(
    suite: Annotated[str, tyro.conf.Positional],
    how: Options,
    *,
    preset: Preset = "full",
    online_steps: int | None = None,
) -> None:
    """Run a whole comparison, or continue it, and write its figure, table and page.

    Args:
        suite: start: MountainCar with logs, without, and from logs alone. lock: every algorithm on
            both datasets. briee: Hy-Q against BRIEE as the lock grows.
            deep: deep Hy-Q and the baselines on MountainCar, Acrobot and a key-door maze.
            continuous: Hy-SAC and the baselines on sparse tasks of robots and mazes.
            continuous-ablations: what each choice of Hy-SAC is worth on two of them.
            montezuma-tuning: four settings of each algorithm for Montezuma's Revenge.
            ablations: what makes Hy-Q learn Montezuma's Revenge on a CPU, undone one by one.
            montezuma: Hy-Q against the baselines on Montezuma's Revenge; hours to days.
        how: Where and how to run.
        preset: full has three or five replicates; quick takes minutes.
        online_steps: Steps of every run of montezuma, in place of a preset: 3,000,000 if not
            given. Algorithms that never act make as many updates.
    """
    if suite in SUITES_BY_STEPS:
        check_idle(suite, preset=preset if preset == "quick" else None)
        make, usual = SUITES_BY_STEPS[suite]
        _run_suite(make(usual if online_steps is None else online_steps), suite, how)
    elif suite not in SUITES:
        raise HyqError(f"no suite {suite!r}: choose from {', '.join([*SUITES, *SUITES_BY_STEPS])}")
    else:
        check_idle(suite, online_steps=online_steps)
        _run_suite(SUITES[suite](preset), f"{suite}-{preset}", how)


def reproduce_theory(*, out: Path = Path("results/theory"), quick: bool = False) -> None:
    """Measure Theorem 1 and Corollary 1: what is lost against T, C_pi, d and H, beside the bounds.

    Args:
        out: New directory for the records, the figure and the page.
        quick: Seconds instead of minutes, for a look.
    """
    with progress_bar("theorem") as update:
        for done, total in theory.start(out, quick):
            update(done, total)
    report_theory(out, console)


def _run_suite(chosen: Suite, name: str, how: Launch) -> None:
    directory = SuiteDirectory.prepare(how.out or Path("runs") / name, chosen)
    todo = pending(directory, chosen, how.retry)
    events = launch(directory, todo, _pool(directory.path, how))
    began = time.perf_counter()
    if finished := watch_suite(directory, chosen, events):
        elapsed = time.perf_counter() - began
        busy = sum((directory.summary(run) or {}).get("wall_seconds", 0) for run in finished)
        console.print(f"{len(finished)} runs, {busy:,.0f} s of work in {elapsed:,.0f} s")
    report_suite(directory.path)


def _pool(path: Path, how: Launch) -> Any:
    if how.ray is None:
        return Processes(path, how.workers or os.cpu_count() or 1)
    try:
        module = importlib.import_module("hyq.runs.launch_ray")
    except ImportError:
        raise HyqError("--ray needs Ray: install it with pip install 'hyq[ray]'") from None
    return module.Cluster(path, None if how.ray == "local" else how.ray)


def watch_suite(
    directory: SuiteDirectory, suite: Suite, events: Iterator[Event | None]
) -> list[Run]:
    """Show how many runs are done, what is under way, and every failure; return what finished."""
    newly: list[Run] = []
    finished = sum(directory.summary(run) is not None for run in suite.runs)
    for run in suite.runs:
        if (error := directory.failure(run)) is not None:
            console.print(f"failed before {run.id}: {_last_line(error)} (--retry)", style="red")
    with progress_bar(suite.name, len(suite.runs), console) as update:
        update(finished)
        for event in events:
            if event is None:
                update(description=_under_way(directory, suite))
            elif event.outcome == "finished":
                newly.append(event.spec)
                update(advance=1)
                console.print(f"finished {event.spec.id}", soft_wrap=True)
            else:
                reason = _last_line(directory.failure(event.spec) or "its worker died")
                console.print(f"{event.outcome} {event.spec.id}: {reason}", style="red")
    return newly


def _last_line(text: str) -> str:
    return (text.splitlines() or [""])[-1]


def _under_way(directory: SuiteDirectory, suite: Suite) -> str:
    active = [
        f"{run.algorithm} {row['online_steps']:,} samples, "
        f"return {row.get('eval_return', float('nan')):.2f}"
        for run in suite.runs
        if directory.summary(run) is None
        and directory.failure(run) is None
        and (row := directory.progress(run)) is not None
    ]
    return "; ".join(active[:2]) or suite.name
