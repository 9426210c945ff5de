"""Any runs beside one another: a panel an environment, a line an algorithm, dataset and setting."""

from collections.abc import Sequence

import numpy as np

from hyq.report.figures import DASHES, FEWEST_FOR_BAND, Curve, Level, Panel
from hyq.report.html import Section, note
from hyq.report.lines import (
    EVALUATED,
    RECENT,
    Line,
    Measure,
    group_runs,
    has_values,
    line_panel,
    seeds_said,
)
from hyq.report.records import RunResult, grouped
from hyq.report.tables import number, run_table

COLORS = ("#1f6f8b", "#d1495b", "#e09f3e", "#6a994e", "#7b2cbf", "#0a9396", "#7f4f24", "#c51bc5")
FEWEST_EVALUATIONS = 2
MOST_NAMED = 3


def compared_lines(runs: Sequence[RunResult]) -> dict[str, list[Line]]:
    """Group runs by environment, and by what tells them apart."""
    found = {}
    for environment, here in grouped(runs, lambda run: run.environment).items():
        several = len({run.setting("data") for run in here}) > 1
        data = [str(run.setting("data") or "no data") if several else "" for run in here]
        places = [(run, environment, name, True) for run, name in zip(here, data, strict=True)]
        found[environment] = group_runs(places, measure_of(here))
    return found


def measure_of(runs: Sequence[RunResult]) -> Measure:
    """Choose what runs are drawn by: evaluations, or training episodes where there are few."""
    evaluated = [len(run.points("eval_return", "iteration")[0]) for run in runs if run.acts]
    few = bool(evaluated) and np.median(evaluated) < FEWEST_EVALUATIONS
    return RECENT if few and has_values(runs, RECENT) else EVALUATED


def run_panels(runs: Sequence[RunResult]) -> list[Panel]:
    """Draw any runs; what never acts is drawn against its updates."""
    panels = []
    for environment, lines in compared_lines(runs).items():
        drawn: list[Curve | Level | None] = []
        for index, line in enumerate(lines):
            turn, color = divmod(index, len(COLORS))
            x = "online_steps" if all(run.acts for run in line.runs) else "updates"
            look = {"color": COLORS[color], "dashes": DASHES[turn % len(DASHES)], "shown": True}
            drawn.append(line.drawn(x, **look))
        here = [run for line in lines for run in line.runs]
        drawn += [Level(1.0, "optimal policy")] if here[0].on_lock else []
        acting = all(run.acts for run in here)
        labels = {
            "x_label": "online steps" if acting else "online steps, or updates offline",
            "y_label": (RECENT if lines[0].measure is RECENT else EVALUATED).label,
        }
        panels.append(line_panel(environment, drawn, here, **labels))
    return panels


def compared(runs: Sequence[RunResult]) -> list[str]:
    """Say what has the highest return in each environment, and what is not known yet."""
    parts, few = [], False
    for environment, lines in compared_lines(runs).items():
        ranked = sorted((one for one in lines if one.newest), key=lambda one: -_median(one))
        few = few or any(len(one.newest) < FEWEST_FOR_BAND for one in ranked)
        said = "; ".join(
            f"{one.label}: {number(_median(one))} ({seeds_said(len(one.newest))})"
            for one in ranked[:MOST_NAMED]
        )
        rest = len(lines) - len(ranked[:MOST_NAMED])
        said += f"; and {rest} more" * bool(rest)
        parts.append(f"On {environment}, the newest return (median), highest first: {said}.")
    under_way = sum(run.summary is None for run in runs)
    state = f"{under_way} of them not finished" if under_way else "all finished"
    parts.append(
        f"{len(runs)} runs, {state}." if len(runs) > 1 or under_way else "1 run, finished."
    )
    if few:
        parts.append("With fewer than three seeds, another seed may give a very different return.")
    return parts


def _median(line: Line) -> float:
    return float(np.median(line.newest))


def compare_sections(runs: Sequence[RunResult]) -> list[Section]:
    """Return the figure and the table of any runs."""
    drawn = Section(panels=run_panels(runs), note=note("compare"))
    return [drawn, Section("Runs", table=run_table(runs))]
