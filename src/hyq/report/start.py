"""The first figure: a problem with logs and live steps, with live steps alone, with logs alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.report.figures import Panel
from hyq.report.html import publish
from hyq.report.lines import RETURN, Line, line_panel
from hyq.report.records import RunResult, SuiteRecords, grouped
from hyq.report.tables import TextTable, number

NAMES = {
    "hyq": "logs and live steps (Hy-Q)",
    "dqn": "live steps alone (DQN)",
    "cql": "logs alone (CQL)",
}
NOTE = "The line is the median over seeds, the band the 20th to the 80th percentile."


def start_panel(runs: Sequence[RunResult]) -> Panel:
    """Draw returns against live steps; logs alone, which take none, are a level."""
    of = grouped(runs, lambda run: str(run.setting("algorithm")))
    lines = [
        Line(label, "", name, True, tuple(of[name]), RETURN)
        for name, label in NAMES.items()
        if name in of
    ]
    environments = ", ".join({run.environment for run in runs})
    drawn = [line.drawn() for line in lines]
    return line_panel(environments, drawn, runs, x_label="live steps", y_label=RETURN.label)


def start_table(runs: Sequence[RunResult]) -> TextTable:
    """Lay out when each way of learning solved the problem, and what its last policy earns."""
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


def start_conclusion(runs: Sequence[RunResult]) -> str:
    """Say in a sentence what the figure shows."""
    rows = {row[0]: row for row in start_table(runs).rows}
    parts = [f"{name}: solved in {rows[name][1]} runs" for name in NAMES.values() if name in rows]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def report_start(path: Path, console: Console) -> None:
    """Write the figure and the page of the suite."""
    records = SuiteRecords.read(path)
    begun = [run for run in records.runs if run.rows]
    said, panel = [start_conclusion(begun)], start_panel(begun)
    publish(records, [panel], start_table(begun), console, said, notes=(NOTE, ""), size=(8.6, 4.2))
