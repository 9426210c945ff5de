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
from hyq.report.compare import compare_sections, compared, environment_lines, state_said
from hyq.report.html import write_page
from hyq.report.montezuma import report_montezuma
from hyq.report.plot import draw_panels, write_figure
from hyq.report.records import RunResult, find_runs
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


def report(
    *paths: Annotated[Path, tyro.conf.Positional],
    figure: Path | None = None,
    page: Path | None = None,
) -> None:
    """Compare any runs: a table, their learning curves and a page; or report a whole suite.

    Args:
        paths: Directories of runs, or of whatever holds runs; or that of one suite, finished or
            not.
        figure: Where to draw the curves of runs, curves.png if not given.
        page: Where to write the page of runs, report.html beside the figure if not given.
    """
    if not paths:
        raise HyqError("name at least one run's directory, or a suite's")
    if (paths[0] / "suite.json").exists():
        check_idle("the report of a suite", figure=figure, page=page)
        if len(paths) > 1:
            raise HyqError("a suite is reported on its own: name one directory")
        report_suite(paths[0])
        return
    figure = figure or Path("curves.png")
    page = page or figure.with_name("report.html")
    for place in (figure, page):
        check_writable(place)
    runs = [RunResult.read(path) for path in find_runs(paths)]
    said, sections = [*compared(environment_lines(runs)), state_said(runs)], compare_sections(runs)
    write_figure(draw_panels(sections[0].panels, columns=3), figure)
    write_page(page, "Runs compared", said, sections)
    console.print(run_table(runs).rich())
    console.print(f"learning curves: {figure}   page: {page}", soft_wrap=True)


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
}
"""Suites that are reported in a way of their own."""
