"""The subcommands that report what runs and suites have recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from hyq.commands.watch import progress_bar
from hyq.core.errors import HyqError
from hyq.core.files import check_writable
from hyq.core.terminal import Terminal
from hyq.report.ablations import report_ablations, report_datasets
from hyq.report.curves import draw_runs, write_figure
from hyq.report.montezuma import report_montezuma
from hyq.report.records import RunResult
from hyq.report.start import report_start
from hyq.report.suite import report_suite as write_suite
from hyq.report.tables import run_table
from hyq.runs.montezuma_suite import (
    DATASETS,
    VIDEO_EPISODES,
    make_video,
    videos_to_make,
    write_datasets,
)
from hyq.runs.records import read_suite

console = Terminal()


def report(
    *paths: Annotated[Path, tyro.conf.Positional], figure: Path = Path("curves.png")
) -> None:
    """Compare any runs: print a table and draw their learning curves.

    Args:
        paths: The runs' directories.
        figure: Where to draw.
    """
    if not paths:
        raise HyqError("name at least one run's directory")
    check_writable(figure)
    runs = [RunResult.read(path) for path in paths]
    write_figure(draw_runs(runs), figure)
    console.print(run_table(runs).rich())
    console.print(f"learning curves: {figure}")


def report_suite(path: Annotated[Path, tyro.conf.Positional]) -> None:
    """Write the figure and the page of a suite from its records, finished or not.

    Args:
        path: The suite's directory.
    """
    name = read_suite(path)["suite"]
    _REPORTS.get(name, write_suite)(path, console)


def _record_and_report(path: Path, console: Console) -> None:
    """Record videos of what has ended since the last report, look at the data once, and report."""
    if not (path / DATASETS).exists():
        with progress_bar("reading the datasets", console=console) as update:
            write_datasets(path, update)
    for place, run in videos_to_make(path).items():
        with progress_bar(f"recording {place.name}", VIDEO_EPISODES, console) as update:
            make_video(run, place, update)
    report_montezuma(path, console)


_REPORTS: dict[str, Callable[[Path, Console], None]] = {
    "start": report_start,
    "montezuma": _record_and_report,
    "ablations": report_ablations,
    "coverage": report_datasets,
}
"""Suites that are reported in a way of their own."""
