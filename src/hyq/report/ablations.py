"""What each setting is worth, and each dataset: runs beside one that lacks nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.core.types import FloatArray
from hyq.report.figures import DOTTED, Curve, Level, Panel, summed
from hyq.report.html import publish
from hyq.report.lines import RECENT, RECENT_EPISODES, RETURN, Line, line_panel
from hyq.report.records import (
    RunResult,
    SuiteRecords,
    algorithm_name,
    differences,
    grouped,
    in_words,
    is_offline,
)
from hyq.report.tables import TextTable, number
from hyq.runs.suites import ABLATIONS

WHOLE = next(iter(ABLATIONS))
COLORS = ("#1f6f8b", "#d1495b", "#e09f3e", "#6a994e")
SEED_RANGE = ((300_000, 581), (600_000, 779), (1_000_000, 1346))
"""The most that three seeds of the whole differ by, up to so many steps (results/montezuma)."""


def recent_return(run: RunResult, steps: float) -> float:
    """Return the recent return after so many steps; NaN before they were taken."""
    taken, recent = run.points("recent_return")
    return float(np.interp(steps, [-1, *taken], [np.nan, *recent], right=np.nan))


def name_ablations(runs: Sequence[RunResult]) -> dict[str, RunResult]:
    """Name each run by the settings in which it differs from most of the others."""
    known = {
        tuple(sorted((setting, json.dumps(value)) for setting, value in changes.items())): name
        for name, changes in ABLATIONS.items()
    }
    found = {}
    for run, changed in zip(runs, differences(runs), strict=True):
        label = ", ".join(f"{name}={value}" for name, value in changed.items())
        found[known.get(tuple(sorted(changed.items())), label)] = run
    return found


def seed_range(steps: int) -> int:
    """Return what two seeds of one setting may differ by after so many steps."""
    return next((points for until, points in SEED_RANGE if steps <= until), SEED_RANGE[-1][1])


def ablation_table(ablations: Mapping[str, RunResult], steps: int) -> TextTable:
    """Lay out the recent return at thirds of the run, and how far the end is from the whole's."""
    whole = recent_return(ablations[WHOLE], steps) if WHOLE in ablations else np.nan
    marks, rows = [steps * part // 3 for part in (1, 2, 3)], []
    for name, run in ablations.items():
        values = [recent_return(run, mark) for mark in marks]
        difference = values[-1] - whole
        text = _points(difference, "+,.0f")
        if abs(difference) <= seed_range(steps):
            text = f"({text})"
        shown = [_points(value, ",.0f") for value in values]
        rows.append([name, *shown, "" if name == WHOLE else text])
    columns = ("changed setting", *(f"{mark:,}" for mark in marks), "difference")
    return TextTable(columns, rows, "recent return after so many online steps")


def _points(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def report_ablations(path: Path, console: Console) -> None:
    """Write the figure and the page, and print the table and how much of it may be noise."""
    records = SuiteRecords.read(path)
    ablations = {name: run for name, run in name_ablations(records.runs).items() if run.rows}
    steps = int(next(iter(ablations.values())).setting("online_steps"))
    lines = {name: run.points("recent_return") for name, run in ablations.items()}
    behind = [Curve(WHOLE, *lines.pop(WHOLE), color="#999999", seeds=1)] if WHOLE in lines else []
    labels = {"x_range": (0, steps), "y_label": "recent return"}
    panels = []
    for name, points in lines.items():
        changed = Curve("changed", *points, color=COLORS[0], seeds=1)
        panels.append(line_panel(name, [*behind, changed], (), **labels))
    table = ablation_table(ablations, steps)
    worse = [row[0] for row in table.rows if row[-1].startswith("-") and row[-1] != "-"]
    said = f"{len(worse)} of {len(table.rows) - 1} changes lower the return by more than another "
    said += f"seed may: {'; '.join(worse) or 'none'}."
    notes = (
        "One seed a row. Three seeds of the same settings were up to "
        f"{seed_range(steps):,} points apart: what is in brackets may be noise."
    )
    drawn = panels or [Panel(WHOLE, behind)]
    both = f"{RECENT.label.capitalize()}; grey: {WHOLE}.", notes
    publish(records, drawn, table, console, [said], notes=both, share_y=True, size=(3.6, 2.8))
    console.print(notes)


MARKS = (1500.0, 2500.0)
"""Points an episode; 2,500 are the key, a door, the sword and the enemy two rooms away."""


def moving_average(run: RunResult) -> tuple[FloatArray, FloatArray]:
    """Return the online steps at the end of each 100 episodes in a row, and their mean return."""
    episodes = [episode for row in run.rows for episode in row["episodes"]]
    steps, returns = np.array([episode[:2] for episode in episodes], float).reshape(-1, 2).T
    total = np.concatenate([[0.0], np.cumsum(returns)])
    return steps[RECENT_EPISODES - 1 :], (
        total[RECENT_EPISODES:] - total[:-RECENT_EPISODES]
    ) / RECENT_EPISODES


def steps_until(run: RunResult, points: float) -> float:
    """Return the steps until 100 episodes in a row return so much; infinite where never."""
    steps, average = moving_average(run)
    reached = np.flatnonzero(average >= points)
    return float(steps[reached[0]]) if len(reached) else np.inf


def report_datasets(path: Path, console: Console) -> None:
    """Report how soon one algorithm learns from each of several datasets."""
    records, curves, rows, order = SuiteRecords.read(path), [], [], []
    groups = grouped(records.runs, lambda run: str(run.setting("data")))
    for (data, runs), color in zip(groups.items(), COLORS, strict=False):
        needed = {run.setting("seed"): [steps_until(run, mark) for mark in MARKS] for run in runs}
        needed["median"] = np.median(list(needed.values()), axis=0).tolist()
        rows += [[data, str(seed), *map(_steps, steps)] for seed, steps in needed.items()]
        order.append((needed["median"][-1], data))
        averages = [(moving_average(run), False) for run in runs]
        curves.append(summed(data, averages, color=color, marker=""))
    levels = [Level(mark, f"{mark:,.0f} points", dashes=DOTTED) for mark in MARKS]
    title = f"online steps until {RECENT_EPISODES} successive episodes return so much on average"
    table = TextTable(("data", "seed", *(f"{mark:,.0f}" for mark in MARKS)), rows, title, left=2)
    said = ", then ".join(f"{data} ({_steps(steps)})" for steps, data in sorted(order))
    panel = Panel("", [*curves, *levels], y_label=RECENT.label)
    conclusion = [f"Soonest to {MARKS[-1]:,.0f} points: {said}."]
    publish(records, [panel], table, console, conclusion, notes=("", title), size=(7.5, 4.4))


def _steps(steps: float) -> str:
    return f"{steps:,.0f}" if np.isfinite(steps) else "not reached"


def trials(runs: Sequence[RunResult]) -> list[Line]:
    """Name each run of an algorithm by all the settings that were tried, as one line each."""
    changed = dict.fromkeys(name for change in differences(runs) for name in change)
    found = []
    for run in runs:
        label = in_words({name: json.dumps(run.setting(name)) for name in changed}) or "the preset"
        algorithm = str(run.setting("algorithm"))
        measure = RETURN if is_offline(algorithm) else RECENT
        found.append(Line(label, algorithm_name(algorithm), algorithm, True, (run,), measure))
    return found


def report_tuning(path: Path, console: Console) -> None:
    """Compare the trials of each algorithm, one seed each, by what chooses between them."""
    records, panels, rows, best = SuiteRecords.read(path), [], [], []
    begun = [run for run in records.runs if run.rows]
    for algorithm, runs in grouped(begun, lambda run: str(run.setting("algorithm"))).items():
        lines, x = trials(runs), "updates" if is_offline(algorithm) else "online_steps"
        drawn = [one.drawn(x, color=color) for one, color in zip(lines, COLORS * 9, strict=False)]
        labels = {"x_label": x.replace("_", " "), "y_label": lines[0].measure.label}
        panels.append(line_panel(lines[0].panel, drawn, (), **labels))
        for line in lines:
            state = "ended" if line.finished else "under way"
            newest = number(line.values[0] if line.values else None)
            counted = f"{line.runs[0].rows[-1][x]:,}"
            rows.append((line.panel, line.label, counted, newest, state))
        if known := [line for line in lines if line.values]:
            chosen = max(known, key=lambda line: line.values)
            best.append(f"{chosen.panel}: {chosen.label} ({number(chosen.values[0])})")
    said = (
        f"Best of the trials so far, {'; '.join(best)}." if best else "No trial has a return yet."
    )
    columns = ("algorithm", "settings", "steps or updates", "return", "state")
    table = TextTable(columns, rows, records.manifest["title"], left=2)
    few = "One seed each: neighbours may be level."
    publish(records, panels, table, console, [said, few], share_y=True)
