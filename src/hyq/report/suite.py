"""A suite: its runs grouped by algorithm and setting, summed up in a figure, a table and a page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.report.compare import compared, line_panels
from hyq.report.html import Section, note, publish
from hyq.report.lines import (
    FEWEST_FOR_INTERVAL,
    LOCK_RETURN,
    SUCCESS,
    Line,
    Place,
    group_runs,
    interval_of,
    listed,
    measure_of,
)
from hyq.report.records import RunResult, SuiteRecords, grouped
from hyq.report.stats import interquartile_mean
from hyq.report.tables import TextTable, number

COLUMNS = ("setting", "algorithm", "solved", "steps to solve", "return", "95% interval", "sec")
SUCCESS_COLUMNS = ("setting", "algorithm", "seeds", "success", "95% interval", "return", "sec")
OVERALL_COLUMNS = ("algorithm", "tasks", "runs", "success", "95% interval", "mean", "lowest task")
DIAGNOSTICS = (
    "iteration", "online_steps", "eval_return", "success", "depth", "recent_return", "td_offline",
    "td_online", "offline_share", "start_q", "start_return", "offline_residual", "online_residual",
    "realised_offline_share",
)  # fmt: skip
RECORDS_SHOWN = 8


def suite_lines(runs: Sequence[RunResult]) -> list[Line]:
    """Group the runs of a suite."""
    by_problem = any(str(run.setting("data")).endswith("/half") for run in runs)
    places = _lock_places(runs) if runs[0].on_lock else _deep_places(runs, by_problem)
    lines = group_runs(places, measure_of(runs), by_peak=True)
    # Where neither problems nor algorithms tell runs apart, their settings do.
    one_algorithm = len({run.spec["algorithm"] for run in runs}) == 1
    of_settings = not runs[0].on_lock and (one_algorithm or not by_problem)
    return [replace(line, is_main=True) for line in lines] if of_settings else lines


def _lock_places(runs: Sequence[RunResult]) -> list[Place]:
    several_horizons = len({run.setting("horizon") for run in runs}) > 1
    datasets = list(dict.fromkeys(run.setting("data") for run in runs))
    found: list[Place] = []
    for run in runs:
        algorithm, data = run.setting("algorithm"), run.setting("data")
        if several_horizons:
            suffix = f"{data} data" if algorithm == "hyq" else ""
            found.append((run, f"H = {run.setting('horizon')}", suffix, True))
        else:  # what never sees the data belongs beside every dataset
            panels = datasets if algorithm in ("online-only", "briee") else [data]
            found += [(run, panel, "", True) for panel in panels]
    return found


def _deep_places(runs: Sequence[RunResult], by_problem: bool) -> list[Place]:
    """Draw a panel a problem where it has half random data, or else a panel a dataset."""
    found: list[Place] = []
    for run in runs:
        data = str(run.setting("data"))
        problem, _, quality = data.rpartition("/")
        main = not by_problem or quality == "half"
        suffix = "" if main else f"{quality} data"
        found.append((run, problem if by_problem else data, suffix, main))
    return found


def suite_conclusion(records: SuiteRecords, lines: Sequence[Line]) -> list[str]:
    """Say which algorithm was best in each setting, and what that leaves out."""
    found = compared([line for line in lines if line.finished])
    if missing := records.not_begun:
        found.append(f"Nothing is recorded yet of {listed(missing)}.")
    taken = {
        line.label: max(one["online_steps"] for one in line.finished)
        for line in lines
        if line.is_main and line.finished and line.acts and not line.steps_to_solve.solved
    }
    if lines[0].measure is LOCK_RETURN and len(set(taken.values())) > 1:
        given = ", ".join(f"{name} {steps:,}" for name, steps in taken.items())
        found.append(f"What did not solve it was not given the same online steps: {given}.")
    if others := dict.fromkeys(line.label for line in lines if line.finished and not line.is_main):
        found.append(f"Hidden in the figure until clicked: {listed(others)}.")
    return found


def suite_table(lines: Sequence[Line], title: str = "") -> TextTable:
    """Lay out one row an algorithm and setting."""
    columns = SUCCESS_COLUMNS if lines[0].measure is SUCCESS else COLUMNS
    return TextTable(columns, [_cells(line) for line in lines if line.finished], title, left=2)


def _cells(line: Line) -> tuple[str, ...]:
    shown = "{:.3f}".format if line.measure.range else number
    solve, bounds = line.steps_to_solve, line.interval
    interval = "-" if bounds is None else " to ".join(map(shown, bounds))
    name, score = (line.panel, line.label), (shown(line.mean), interval)
    seconds = f"{np.median([summary['wall_seconds'] for summary in line.finished]):,.0f}"
    if line.measure is SUCCESS:
        returns = np.array([summary["eval_return"] for summary in line.finished])
        return *name, str(solve.runs), *score, number(interquartile_mean(returns)), seconds
    steps = str(solve) if line.acts else "-"
    return *name, f"{solve.solved}/{solve.runs}", steps, *score, seconds


def overall_table(lines: Sequence[Line]) -> TextTable | None:
    """Sum every algorithm up over the tasks, where their scores are on one scale."""
    if lines[0].measure is not SUCCESS:
        return None
    rows = []
    finished = [line for line in lines if line.finished]
    for name, here in grouped(finished, lambda line: line.label).items():
        scores = np.concatenate([line.scores for line in here])
        low, high = interval_of([line.scores for line in here])
        lowest = min(here, key=lambda line: line.mean)
        middle = f"{interquartile_mean(scores):.3f}", f"{low:.3f} to {high:.3f}"
        ends = f"{scores.mean():.3f}", f"{lowest.mean:.3f} ({lowest.panel})"
        rows.append((name, str(len(here)), str(len(scores)), *middle, *ends))
    return TextTable(OVERALL_COLUMNS, rows, "Over the tasks")


def report_suite(path: Path, console: Console) -> None:
    """Write the figure and the page, and print the table."""
    records = SuiteRecords.read(path)
    if all(run.summary is None for run in records.runs):
        raise HyqError(f"{path} has no finished run to report yet")
    lines = suite_lines(records.runs)
    panels = line_panels(lines, log_x=0 if lines[0].measure is SUCCESS else 10)
    overall, table = overall_table(lines), suite_table(lines, records.manifest["title"])
    peak = any(line.by_peak and line.finished for line in lines)
    said = note("suite_table" if overall is None else "success_table", fewest=FEWEST_FOR_INTERVAL)
    said += f" {note('peak')}" * peak
    sections = [Section("Every run", parts=[_every_run(line) for line in lines])]
    if overall is not None:
        console.print(overall.rich())
        sections.insert(0, Section("Over the tasks", table=overall, note=note("overall")))
    publish(
        records,
        panels,
        table,
        console,
        suite_conclusion(records, lines),
        sections,
        notes=(note("suite_figure"), said),
        share_y=len({run.setting("env") for run in records.runs}) == 1,
        columns=4 if len(panels) == 4 else 3,
    )


def _every_run(line: Line) -> Section:
    """List some records of each run, folded away."""
    parts = []
    for run in line.runs:
        names = [name for name in DIAGNOSTICS if any(name in row for row in run.rows)]
        picked = np.unique(np.linspace(0, len(run.rows) - 1, RECORDS_SHOWN).astype(int))
        rows = [[number(run.rows[i].get(name), 4) for name in names] for i in picked if run.rows]
        ended = "under way"
        if run.summary is not None:  # a success rate has no threshold to reach
            solved = "solved" if run.summary["solved"] else "not solved"
            ended = "ended" if line.measure is SUCCESS else solved
        table = TextTable([name.replace("_", " ") for name in names], rows, left=0)
        parts.append(Section(f"seed {run.setting('seed')}: {ended}", table=table))
    return Section(f"{line.panel} · {line.label}", parts=parts, folded=True)
