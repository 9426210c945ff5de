"""Lines beside one another, of a suite or of any runs: a panel a setting, and a conclusion."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import get_args

import numpy as np

from hyq.experts.lock import LockData
from hyq.report.figures import DASHES, FEWEST_FOR_BAND, Panel
from hyq.report.html import Section, note
from hyq.report.lines import (
    LOCK_RETURN,
    SUCCESS,
    Line,
    group_runs,
    line_panel,
    listed,
    measure_of,
    seeds_said,
)
from hyq.report.records import OTHER_COLOR, RunResult, algorithm_color, grouped
from hyq.report.stats import interquartile_mean
from hyq.report.tables import number, run_table

VARIANT_COLORS = ("#0a9396", "#7f4f24", "#023e8a", "#c51bc5", "#6b7000")
"""Variants of one algorithm differ by these and by dashes, cycled through separately."""
MOST_NAMED = 3


def environment_lines(runs: Sequence[RunResult]) -> list[Line]:
    """Group any runs by environment, and by what tells them apart."""
    lines = []
    for environment, here in grouped(runs, lambda run: run.environment).items():
        several = len({run.setting("data") for run in here}) > 1
        data = [str(run.setting("data") or "no data") if several else "" for run in here]
        places = [(run, environment, name, True) for run, name in zip(here, data, strict=True)]
        lines += group_runs(places, measure_of(here))
    return [replace(line, is_main=True) for line in lines]


def panel_title(panel: str) -> str:
    """Say in full what a panel shows."""
    return f"optimal {panel} data" if panel in get_args(LockData) else panel


def line_panels(lines: Sequence[Line], log_x: int = 0) -> list[Panel]:
    """Draw a panel a setting; lines that are not main ones are hidden at first.

    The first line of an algorithm has its colour, others have colours and dashes of their own.
    """
    first: dict[tuple[str, str], Line] = {}
    for line in lines:
        first.setdefault((line.panel, line.algorithm), line)
    variants = dict.fromkeys(
        line.label
        for line in lines
        if first[line.panel, line.algorithm] is not line
        or algorithm_color(line.algorithm) == OTHER_COLOR
    )
    looks = zip(cycle(VARIANT_COLORS), cycle(DASHES[1:]), strict=False)
    look_of = dict(zip(variants, looks, strict=False))
    panels = []
    for name, here in grouped(lines, lambda line: line.panel).items():
        acting, runs = any(line.acts for line in here), [run for one in here for run in one.runs]
        x, measure, drawn = "online_steps" if acting else "updates", here[0].measure, []
        for line in here:
            color, dashes = look_of.get(line.label, (algorithm_color(line.algorithm), ""))
            drawn.append(line.drawn(x, color=color, **({"dashes": dashes} if dashes else {})))
        labels = {
            "x_label": x.replace("_", " ") + ", roll-ins included" * runs[0].on_lock,
            # Most of what does not solve a lock returns nearly the same little.
            "log_y": measure is LOCK_RETURN,
            "y_label": measure.label,
            "y_range": measure.range if measure is SUCCESS else None,
            "log_x": log_x,
            "note": "bar at the end: 95% interval of the mean" * (measure is SUCCESS),
        }
        panels.append(line_panel(panel_title(name), drawn, runs, **labels))
    return panels


def compared(lines: Sequence[Line]) -> list[str]:
    """Say what is best in each setting, and where that may be chance."""
    shown = [line for line in lines if line.is_main and line.values]
    if ended := [line for line in shown if line.measure is SUCCESS and line.scores]:
        found = [_over_tasks_said(ended)]
    else:
        found = [_best_said(*one) for one in grouped(shown, lambda line: line.panel).items()]
    few = [one for one in shown if len(one.values) < FEWEST_FOR_BAND]
    if names := [f"{one.label} on {panel_title(one.panel)}" for one in few]:
        more = f", and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED)
        where = f"{listed(names[:MOST_NAMED])}{more}"
        found.append(
            f"With fewer than three seeds, another may give a very different return: {where}."
        )
    return found


def _best_said(panel: str, lines: Sequence[Line]) -> str:
    """Name what solved most with the fewest steps; else what has the highest returns."""

    def merit(line: Line) -> tuple[float, float]:
        solve = line.steps_to_solve
        return -solve.solved / solve.runs, solve.median

    where = f"On {panel_title(panel)}, "
    ended = [line for line in lines if line.finished]
    if solved := [line for line in ended if line.steps_to_solve.solved]:
        return f"{where}{'; '.join(map(_solved_said, sorted(solved, key=merit)))}."
    runs = [run for line in lines for run in line.runs]
    goal = any(run.on_lock or run.setting("threshold") is not None for run in runs)
    ranked = sorted(lines, key=lambda one: -np.median(one.values))
    said = "; ".join(
        f"{one.label}: {number(float(np.median(one.values)))} ({seeds_said(len(one.values))})"
        for one in ranked[:MOST_NAMED]
    )
    said += f"; and {len(ranked) - MOST_NAMED} more" * (len(ranked) > MOST_NAMED)
    none = "no run solved it, and " if goal and ended else ""
    measure = lines[0].measure.label
    return f"{where}{none}the newest {measure} (median), highest first: {said}."


def _solved_said(line: Line) -> str:
    solve = line.steps_to_solve
    after = f" after {solve} online steps (median)" if line.acts else ""
    return f"{line.label} solved {solve.solved} of {solve.runs}{after}"


def _over_tasks_said(lines: Sequence[Line]) -> str:
    """Compare algorithms on the tasks that all of them have."""
    labels, panels = {line.label for line in lines}, grouped(lines, lambda line: line.panel)
    common = [on for on in panels.values() if len(on) == len(labels)] or list(panels.values())
    scores = grouped((line for on in common for line in on), lambda line: line.label)
    means = {
        name: interquartile_mean(np.concatenate([line.scores for line in on]))
        for name, on in scores.items()
    }
    names = sorted(means, key=lambda name: -means[name])
    ranked = ", ".join(f"{name} {means[name]:.2f}" for name in names)
    tasks = "the one task" if len(common) == 1 else f"the {len(common)} tasks"
    several = " that all have" if len(common) < len(panels) else ""
    alone = ", and nothing to compare it with yet" if len(labels) == 1 else ""
    return f"Success rate at the end, over {tasks}{several} (interquartile mean): {ranked}{alone}."


def state_said(runs: Sequence[RunResult]) -> str:
    """Say how many runs there are, and whether they may change yet."""
    under_way = sum(run.summary is None for run in runs)
    state = f"{under_way} of them not finished" if under_way else "all finished"
    return f"{len(runs)} runs, {state}." if len(runs) > 1 or under_way else "1 run, finished."


def compare_sections(runs: Sequence[RunResult]) -> list[Section]:
    """Return the figure and the table of any runs."""
    panels = line_panels(environment_lines(runs))
    drawn = Section(panels=panels, note=note("compare"))
    return [drawn, Section("Runs", table=run_table(runs))]
