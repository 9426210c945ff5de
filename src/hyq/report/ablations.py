"""What each setting is worth: the recent return of runs that lack one, beside the whole."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.report.runs import RunResult, write_figure
from hyq.runs.suites import ABLATIONS, ablation_suite

WHOLE = next(iter(ABLATIONS))
PAPER = next(name for name, settings in ABLATIONS.items() if "preset" in settings)

SPREAD = ((300_000, 581), (600_000, 779), (1_000_000, 1346))
"""The most that three seeds of the whole differ by, up to so many steps (results/montezuma)."""


@dataclass(frozen=True)
class Ablation:
    """One run of the suite, by what it undoes."""

    name: str
    run: RunResult

    @property
    def points(self) -> list[tuple[int, float]]:
        """(online steps, mean return of the newest 100 episodes) of every record."""
        return [
            (row["online_steps"], row["recent_return"])
            for row in self.run.rows
            if "recent_return" in row
        ]

    def at(self, steps: float) -> float:
        """Return the recent return after so many steps; not a number before they were taken."""
        if not self.points:
            return float("nan")
        taken, recent = np.array(self.points, float).T
        return float(np.interp(steps, taken, recent, left=np.nan, right=np.nan))


def read_ablations(path: Path) -> list[Ablation]:
    """Read whatever has been recorded so far."""
    suite = ablation_suite(_online_steps(path))
    known = {run.id: name for name, run in zip(ABLATIONS, suite.runs, strict=True)}
    made = [
        name
        for name in read_json(path / "suite.json")["runs"]
        if (path / "runs" / name / "manifest.json").exists()
    ]
    if not known.keys() >= set(made):
        raise HyqError(f"{path} has ablations of another version of hyq: report it with that one")
    found = [Ablation(known[name], RunResult.read(path / "runs" / name)) for name in made]
    found = [one for one in found if one.run.rows]
    if not found:
        raise HyqError(f"{path} has no records to report yet")
    return found


def _online_steps(path: Path) -> int:
    first = next(iter(sorted((path / "runs").glob("*/manifest.json"))), None)
    if first is None:
        raise HyqError(f"{path} has no records to report yet")
    return int(read_json(first)["spec"]["online_steps"])


def report_ablations(path: Path, console: Console) -> None:
    """Write the figure, and print the table and what to hold against it."""
    ablations, steps = read_ablations(path), _online_steps(path)
    write_figure(draw_ablations(ablations, steps), path / "figure.png")
    console.print(ablation_table(ablations, steps))
    console.print(
        "One seed a row. Three seeds of the same settings were up to "
        f"{noise(steps):,} points apart: what is in brackets may be noise."
    )
    console.print(f"figure: {path / 'figure.png'}")


def noise(steps: int) -> int:
    """Return what two runs of one setting may differ by after so many steps."""
    return next((spread for until, spread in SPREAD if steps <= until), SPREAD[-1][1])


def ablation_table(ablations: list[Ablation], steps: int) -> Table:
    """Lay out the recent return at thirds of the way, and how far the end is from the whole's."""
    whole = next((one.at(steps) for one in ablations if one.name == WHOLE), float("nan"))
    table = Table(title="what is undone", title_justify="left", box=None)
    table.add_column("")
    marks = [steps * part // 3 for part in (1, 2, 3)]
    for mark in marks:
        table.add_column(f"{mark:,}", justify="right")
    table.add_column("difference", justify="right")
    for one in ablations:
        cells = [one.at(mark) for mark in marks]
        points = ("-" if np.isnan(cell) else f"{cell:,.0f}" for cell in cells)
        difference = "" if one.name == WHOLE else _difference(cells[-1] - whole, steps)
        table.add_row(one.name, *points, difference)
    return table


def _difference(points: float, steps: int) -> str:
    if np.isnan(points):
        return "-"
    return f"{points:+,.0f}" if abs(points) > noise(steps) else f"({points:+,.0f})"


def draw_ablations(ablations: list[Ablation], steps: int) -> Figure:
    """Draw the recent return against online steps, a small panel each, the whole behind it."""
    whole = next((one for one in ablations if one.name == WHOLE), None)
    others = [one for one in ablations if one.name != WHOLE]
    columns = 4
    rows = max(1, -(-len(others) // columns))
    figure = Figure(figsize=(2.9 * columns, 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in panels[len(others) :]:
        axes.set_visible(False)
    for axes, one in zip(panels, others, strict=False):
        if whole is not None and whole.points:
            axes.plot(*np.array(whole.points, float).T, color="#bbbbbb", linewidth=1.6)
        if one.points:
            colour = "#c2571a" if one.name == PAPER else "#1f6f8b"
            axes.plot(*np.array(one.points, float).T, color=colour, linewidth=2)
        axes.set_title(one.name, loc="left", fontsize=8.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e3:g}k" if value else "0")
        axes.set_xlim(0, steps)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("online steps", fontsize=9)
    figure.supylabel("return of the last 100 training episodes", fontsize=9)
    return figure
