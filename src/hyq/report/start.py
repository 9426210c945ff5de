"""The first figure: a problem with logs and live steps, with live steps alone, with logs alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from hyq.report.curves import Curve, Level, Panel, aggregate, draw_curves
from hyq.report.html import publish
from hyq.report.records import RunResult, SuiteRecords, algorithm_color, grouped
from hyq.report.tables import TextTable, number

NAMES = {
    "hyq": "logs and live steps (Hy-Q)",
    "dqn": "live steps alone (DQN)",
    "cql": "logs alone (CQL)",
}
GRID_POINTS = 200


def start_panel(runs: Sequence[RunResult]) -> Panel:
    """Draw returns against live steps; logs alone, which take none, are a level."""
    by_algorithm = grouped(runs, lambda run: str(run.setting("algorithm")))
    curves, levels = [], []
    for name, label in NAMES.items():
        here, color = by_algorithm.get(name, []), algorithm_color(name)
        begun = [run for run in here if run.points("eval_return")[0]]
        if not begun:
            continue
        if not begun[0].rows[-1]["online_steps"]:
            ended = float(np.median([run.points("eval_return")[1][-1] for run in begun]))
            levels.append(Level(ended, label, color=color))
            continue
        grid = np.linspace(0, max(run.rows[-1]["online_steps"] for run in begun), GRID_POINTS)
        low, middle, high = aggregate(begun, grid)
        curves.append(Curve(label, grid, middle, low, high, color, seeds=len(begun)))
    thresholds = {run.setting("threshold") for run in runs} - {None}
    levels += [Level(value, note=f"solved: {value:g}") for value in sorted(thresholds)]
    environments = {run.environment for run in runs}
    return Panel(", ".join(environments), curves, levels, "live steps", "return of the policy")


def draw_start(runs: Sequence[RunResult]) -> Figure:
    """Draw the panel by itself."""
    return draw_curves([start_panel(runs)], size=(8, 4.2))


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
    ended = [run for run in records.runs if run.rows]
    publish(
        records,
        draw_start(ended),
        start_table(ended),
        console,
        start_conclusion(ended),
        notes="The line is the median over seeds, the band the 20th to the 80th percentile.",
    )
