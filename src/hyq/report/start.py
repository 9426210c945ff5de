"""The first figure: a problem with logs and live steps, with live steps alone, with logs alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.report.compare import compared, environment_lines, line_panels
from hyq.report.html import publish
from hyq.report.lines import Line
from hyq.report.records import RunResult, SuiteRecords, grouped
from hyq.report.tables import TextTable, number

NAMES = {
    "hyq": "logs and live steps (Hy-Q)",
    "dqn": "live steps alone (DQN)",
    "cql": "logs alone (CQL)",
}
NOTE = "The line is the median over seeds, the band the 20th to the 80th percentile."


def start_lines(runs: Sequence[RunResult]) -> list[Line]:
    """Name each way of learning by what it learns from."""
    lines = environment_lines(runs)
    return [replace(line, label=NAMES.get(line.algorithm, line.label)) for line in lines]


def start_table(runs: Sequence[RunResult]) -> TextTable:
    """Lay out when each way of learning solved the problem, and the return of its last policy."""
    rows = []
    for name, here in grouped(runs, lambda run: str(run.setting("algorithm"))).items():
        ended = [run.summary for run in here if run.summary is not None]
        if not ended:
            continue
        solved = [summary["solved_at"] for summary in ended if summary["solved"]]
        steps = f"{np.median(solved):,.0f} ({max(solved):,})" if any(solved) else "-"
        returns = [summary["eval_return"] for summary in ended]
        span = f"{number(np.median(returns))} ({number(min(returns))} to {number(max(returns))})"
        rows.append((NAMES.get(name, name), f"{len(solved)} of {len(ended)}", steps, span))
    columns = ("learns from", "solved", "live steps: median (worst)", "last return: median (range)")
    return TextTable(columns, rows)


def report_start(path: Path, console: Console) -> None:
    """Write the figure and the page of the suite."""
    records = SuiteRecords.read(path)
    begun = [run for run in records.runs if run.rows]
    lines = start_lines(begun)
    notes, table = (NOTE, ""), start_table(begun)
    panels = line_panels(lines)
    publish(records, panels, table, console, compared(lines), notes=notes, size=(8.6, 4.2))
