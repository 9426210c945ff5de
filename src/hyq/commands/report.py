"""The subcommands that report what runs and suites have recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.files import check_writable
from hyq.core.settings import check_idle
from hyq.core.terminal import Terminal, progress_bar
from hyq.report.ablations import report_ablations, report_datasets
from hyq.report.curves import draw_runs, write_figure
from hyq.report.montezuma import report_montezuma
from hyq.report.records import RunResult
from hyq.report.start import report_start
from hyq.report.suite import report_suite as write_suite
from hyq.report.tables import run_table
from hyq.runs.montezuma_suite import (
    DATASETS,
    make_video,
    videos_to_make,
    write_datasets,
)
from hyq.runs.records import read_suite

console = Terminal()


def report(*paths: Annotated[Path, tyro.conf.Positional], figure: Path | None = None) -> None:
    """Compare any runs: a table and their learning curves; or write the page of a whole suite.

    Args:
        paths: The runs' directories; or that of one suite, finished or not.
        figure: Where to draw the curves of runs, curves.png if not given.
    """
    if not paths:
        raise HyqError("name at least one run's directory, or a suite's")
    if (paths[0] / "suite.json").exists():
        check_idle("the report of a suite", figure=figure)
        if len(paths) > 1:
            raise HyqError("a suite is reported on its own: name one directory")
        report_suite(paths[0])
        return
    figure = figure or Path("curves.png")
    check_writable(figure)
    runs = [RunResult.read(path) for path in paths]
    write_figure(draw_runs(runs), figure)
    console.print(run_table(runs).rich())
    console.print(f"learning curves: {figure}")


def report_suite(path: Path) -> None:
    """Write the figure and the page of a suite from its records, finished or not."""
    name = read_suite(path)["suite"]
    _REPORTS.get(name, write_suite)(path, console)


def _record_and_report(path: Path, console: Console) -> None:
    """Record videos of what has ended since the last report, look at the data once, and report."""
    if not (path / DATASETS).exists():
        with progress_bar("reading the datasets", console=console) as update:
            write_datasets(path, update)
    for place, run in videos_to_make(path).items():
        with progress_bar(f"recording {place.name}", console=console) as update:
            make_video(run, place, update)
    report_montezuma(path, console)


_REPORTS: dict[str, Callable[[Path, Console], None]] = {
    "start": report_start,
    "montezuma": _record_and_report,
    "ablations": report_ablations,
    "coverage": report_datasets,
}
"""Suites that are reported in a way of their own."""
