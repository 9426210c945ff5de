"""The first figure: a problem with logs and live steps, with live steps alone, with logs alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.report.figures import Curve, Level, Panel, level, run_points, summed
from hyq.report.html import publish
from hyq.report.records import RunResult, SuiteRecords, algorithm_color, grouped
from hyq.report.tables import TextTable, number

NAMES = {
    "hyq": "logs and live steps (Hy-Q)",
    "dqn": "live steps alone (DQN)",
    "cql": "logs alone (CQL)",
}
NOTE = "The line is the median over seeds, the band the 20th to the 80th percentile."


def start_panel(runs: Sequence[RunResult]) -> Panel:
    """Draw returns against live steps; logs alone, which take none, are a level."""
    by_algorithm = grouped(runs, lambda run: str(run.setting("algorithm")))
    drawn: list[Curve | Level] = []
    for name, label in NAMES.items():
        points = [run_points(run, "eval_return") for run in by_algorithm.get(name, [])]
        ended, color = [y[-1] for (x, y), _ in points if len(x)], algorithm_color(name)
        if ended and max(x[-1] for (x, _), _ in points if len(x)) == 0:
            drawn.append(level(label, ended, color=color))
        elif ended:
            drawn.append(summed(label, points, color=color))
    thresholds = {run.setting("threshold") for run in runs} - {None}
    drawn += [Level(value, f"solved: {value:g}") for value in sorted(thresholds)]
    curves = [one for one in drawn if isinstance(one, Curve)]
    levels = [one for one in drawn if isinstance(one, Level)]
    environments = ", ".join({run.environment for run in runs})
    return Panel(environments, curves, levels, "live steps", "return of the policy")


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
