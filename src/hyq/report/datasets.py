"""How soon one method learns from several datasets: steps until its episodes earn so much."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.core.types import FloatArray
from hyq.report.runs import RunResult, write_figure

MARKS = (1500.0, 2500.0)
"""Points an episode; 2,500 are the key, a door, the sword and the enemy two rooms away."""
SUCCESSIVE = 100
"""Episodes that have to earn so much on average: a policy's own 20 say much less."""
COLOURS = ("#1f6f8b", "#c2571a", "#6a994e", "#7b2cbf")


@dataclass(frozen=True)
class Curve:
    """The training episodes of one run."""

    data: str
    seed: int
    taken: FloatArray
    """Online steps at the end of each `SUCCESSIVE` episodes ..."""
    earned: FloatArray
    """... and what they earned on average."""

    @classmethod
    def of(cls, run: RunResult) -> "Curve":
        """Take the mean over every so many successive episodes."""
        episodes = [episode for row in run.rows for episode in row["episodes"]]
        steps, returns = np.array([episode[:2] for episode in episodes], float).reshape(-1, 2).T
        total = np.concatenate([[0.0], np.cumsum(returns)])
        earned = (total[SUCCESSIVE:] - total[:-SUCCESSIVE]) / SUCCESSIVE
        return cls(run.spec["data"], run.spec["seed"], steps[SUCCESSIVE - 1 :], earned)

    def steps_until(self, points: float) -> float:
        """Return the steps it took to earn so much for the first time; infinite if it never did."""
        reached = np.flatnonzero(self.earned >= points)
        return float(self.taken[reached[0]]) if len(reached) else np.inf


def read_curves(path: Path) -> dict[str, list[Curve]]:
    """Read whatever has been recorded so far, by dataset."""
    curves: dict[str, list[Curve]] = {}
    for name in read_json(path / "suite.json")["runs"]:
        if (path / "runs" / name / "manifest.json").exists():
            curve = Curve.of(RunResult.read(path / "runs" / name))
            curves.setdefault(curve.data, []).append(curve)
    if not curves:
        raise HyqError(f"{path} has no records to report yet")
    return curves


def report_datasets(path: Path, console: Console) -> None:
    """Write the figure, and print the table."""
    curves = read_curves(path)
    write_figure(draw_datasets(curves), path / "figure.png")
    console.print(dataset_table(curves))
    console.print(f"figure: {path / 'figure.png'}")


def dataset_table(curves: dict[str, list[Curve]]) -> Table:
    """Lay out the steps of every run, and the median of each dataset's."""
    title = f"online steps until {SUCCESSIVE} successive episodes earn so much on average"
    table = Table(title=title, title_justify="left", box=None)
    for name in ("data", "seed", *(f"{mark:,.0f}" for mark in MARKS)):
        table.add_column(name, justify="left" if name == "data" else "right")
    for data, group in curves.items():
        needed = np.array([[curve.steps_until(mark) for mark in MARKS] for curve in group])
        for curve, steps in zip(group, needed, strict=True):
            table.add_row(data, str(curve.seed), *map(_told, steps))
        table.add_row(data, "median", *map(_told, np.median(needed, axis=0)), style="bold")
    return table


def _told(steps: float) -> str:
    return f"{steps:,.0f}" if np.isfinite(steps) else "not reached"


def draw_datasets(curves: dict[str, list[Curve]]) -> Figure:
    """Draw what successive episodes earn against online steps, a colour a dataset."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for (data, group), colour in zip(curves.items(), COLOURS, strict=False):
        for number, curve in enumerate(group):
            label = data if number == 0 else None
            axes.plot(curve.taken, curve.earned, color=colour, linewidth=1.4, label=label)
    for mark in MARKS:
        axes.axhline(mark, color="#999999", linestyle=":", linewidth=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e3:g}k" if value else "0")
    axes.set_xlim(left=0)
    axes.set_xlabel("online steps")
    axes.set_ylabel(f"return of the last {SUCCESSIVE} training episodes")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
