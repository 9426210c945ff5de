"""The one plotter of learning curves: panels of curves with bands, and horizontal levels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from hyq.core.files import write_bytes
from hyq.core.types import FloatArray
from hyq.report.records import OTHER_COLOR, RunResult, grouped
from hyq.report.stats import band, step_curve

GRID_POINTS = 300
FEWEST_FOR_BAND = 3
"""Seeds from which on `hyq report` shows a median and a band instead of each run."""
GREY = "#888888"


@dataclass(frozen=True)
class Curve:
    """One line of a panel, of one or several seeds. It ends where its values are NaN."""

    label: str
    x: Sequence[float] | FloatArray
    y: Sequence[float] | FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    color: str = OTHER_COLOR
    style: str = "-"
    width: float = 2.0
    marker: str = ""
    seeds: int = 1
    """How many runs it sums up; 0 for what is not a run."""


@dataclass(frozen=True)
class Level:
    """A horizontal line: what an offline algorithm earns, or a mark to compare with."""

    value: float
    label: str = ""
    """Its name in the legend."""
    note: str = ""
    """Text on the line itself."""
    color: str = GREY
    style: str = "--"
    note_below: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[Level] = ()
    x_label: str = "online steps"
    y_label: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float | None] | None = None
    log_x: int = 0
    """Base of a logarithmic axis; 0 for a linear one that begins at 0."""
    log_y: bool = False


def aggregate(
    runs: Iterable[RunResult], grid: FloatArray, y: str = "eval_return", x: str = "online_steps"
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum the learning curves of several seeds up: the lower edge, the centre, the upper edge.

    Evaluations hold until the next one: their median, and the 20th and 80th percentile. A run that
    solved its problem stays where it ended; of the others nothing is known beyond their end. On the
    lock a policy earns nothing before the first evaluation. Recent returns, which change with every
    episode, are lines between records: their mean, the worst and the best. Success rates, of which
    there are few, are lines between evaluations.
    """
    curves: list[FloatArray] = []
    for run in runs:
        steps, values = run.points(y, x)
        if steps and y == "recent_return":
            curves.append(np.interp(grid, steps, values, left=np.nan, right=np.nan))
        elif steps and y == "success":
            curves.append(np.interp(grid, steps, values, right=np.nan))
        elif steps:
            solved = run.summary is not None and bool(run.summary["solved"])
            before = 0.0 if run.on_lock else None
            curves.append(step_curve(steps, values, grid, before=before, ended=solved))
    stacked = np.stack(curves) if curves else np.full((1, len(grid)), np.nan)
    return band(stacked, "mean" if y == "recent_return" else "median")


def draw_curves(
    panels: Sequence[Panel],
    *,
    columns: int = 4,
    size: tuple[float, float] = (5.2, 4.2),
    title: str = "",
    share_y: bool = True,
    shared_legend: bool = True,
) -> Figure:
    """Draw panels of a size in inches side by side, with one legend below or one in each."""
    # Names are shown as they are: a dollar sign in one does not begin a formula.
    with rc_context({"text.parse_math": False}):
        figure, grid = panel_grid(len(panels), columns, size, share_y)
        handles: dict[str, Any] = {}
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
            _draw_panel(axes, panel)
            if number % columns and panel.y_label == panels[number - 1].y_label:
                axes.set_ylabel("")
            axes.set_title(fill(panel.title, int(11 * size[0])), loc="left", fontsize=10.5)
            drawn, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, drawn, strict=True))
            if labels and not shared_legend:
                axes.legend(fontsize=7.5, edgecolor="none")
        if handles and shared_legend:
            fitting = int(12 * figure.get_figwidth() / (10 + max(map(len, handles))))
            figure.legend(
                handles.values(),
                handles,
                loc="outside lower center",
                ncols=min(max(fitting, 1), 6),
                frameon=False,
                fontsize=9,
            )
        if title:
            figure.suptitle(title, x=0.01, ha="left")
    return figure


def panel_grid(
    count: int, columns: int, size: tuple[float, float], share_y: bool = False
) -> tuple[Figure, list[Axes]]:
    """Make a figure of so many axes of a size in inches, in rows of at most `columns`."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid: list[Axes] = list(figure.subplots(rows, columns, sharey=share_y, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def _draw_panel(axes: Axes, panel: Panel) -> None:
    curves = [curve for curve in panel.curves if len(curve.x)]
    for curve in curves:
        axes.plot(
            curve.x,
            curve.y,
            color=curve.color,
            linestyle=curve.style,
            linewidth=curve.width,
            marker=curve.marker,
            markersize=4,
            label=curve.label,
            zorder=3,
        )
        if curve.low is not None and curve.high is not None and curve.seeds > 1:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=curve.color, alpha=0.18, linewidth=0
            )
    for level in panel.levels:
        axes.axhline(
            level.value, color=level.color, linestyle=level.style, linewidth=1.5, label=level.label
        )
        axes.annotate(  # on the left, where few curves have risen yet
            level.note,
            (0.015, level.value),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, -4 if level.note_below else 3),
            textcoords="offset points",
            va="top" if level.note_below else "bottom",
            fontsize=8.5,
            color="#555555",
        )
    if panel.log_x and curves:
        axes.set_xscale("log", base=panel.log_x)
    elif panel.x_range is None and curves:
        axes.set_xlim(left=0)
    if panel.log_y and curves:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if panel.x_range is not None:
        axes.set_xlim(panel.x_range)
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_xlabel(panel.x_label + seeds_note(panel.curves))
    axes.set_ylabel(panel.y_label)
    tidy(axes)


def short(value: float) -> str:
    """Show a round number in a few characters: 250k, 1.5M."""
    units = ((unit, name) for unit, name in ((1e6, "M"), (1e3, "k")) if abs(value) >= unit)
    unit, name = next(units, (1, ""))
    return f"{value / unit:g}{name}" if value % (unit / 100) == 0 else f"{value:,g}"


def seeds_note(curves: Sequence[Curve]) -> str:
    """Say how many seeds the curves of a panel sum up."""
    counts = sorted({curve.seeds for curve in curves if curve.seeds})
    if not counts:
        return ""
    if len(counts) > 1:
        return f" ({counts[0]} to {counts[-1]} seeds)"
    return f" ({counts[0]} seed{'s' if counts[0] > 1 else ''})"


def tidy(axes: Axes) -> None:
    """Draw a light grid and no box, as in every figure."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_runs(runs: Sequence[RunResult]) -> Figure:
    """Compare any runs: a panel an environment, a colour an algorithm and dataset.

    Up to two seeds are drawn as they are, the return of evaluations as a line and that of the last
    training episodes dotted; more are summed up by their median and the 20th and 80th percentile.
    """
    panels: list[Panel] = []
    for environment, here in grouped(runs, lambda run: run.environment).items():
        curves: list[Curve] = []
        for index, (name, group) in enumerate(grouped(here, _line_name).items()):
            curves += _group_curves(name, group, f"C{index % 10}")
        levels = [Level(1.0, note="optimal policy")] if here[0].on_lock else []
        thresholds = {run.setting("threshold") for run in here} - {None}
        levels += [Level(value, note="threshold") for value in sorted(thresholds)]
        # An algorithm that never acts is drawn against its updates.
        x_label = "online steps" if all(map(_acts, here)) else "online steps, or updates offline"
        y_label = "return (dotted: last episodes)"
        panels.append(Panel(environment, curves, levels, x_label, y_label))
    return draw_curves(panels, columns=3, size=(6.4, 4.4), share_y=False)


def _line_name(run: RunResult) -> str:
    return ", ".join(filter(None, (run.setting("algorithm"), run.setting("data"))))


def _acts(run: RunResult) -> bool:
    return run.on_lock or any(row["online_steps"] for row in run.rows)


def _group_curves(name: str, runs: Sequence[RunResult], color: str) -> list[Curve]:
    x, curves = "online_steps" if all(map(_acts, runs)) else "updates", []
    if len(runs) >= FEWEST_FOR_BAND and all(run.points("eval_return")[0] for run in runs):
        grid = np.linspace(0, max(run.rows[-1][x] for run in runs), GRID_POINTS)
        low, middle, high = aggregate(runs, grid, x=x)
        return [Curve(name, grid, middle, low, high, color, seeds=len(runs))]
    for run in runs:
        label, marker = f"{name}, seed {run.setting('seed')}", "o" if run.on_lock else ""
        for key, style in (("eval_return", "-"), ("recent_return", ":")):
            steps, values = run.points(key, x)
            if steps:
                curves.append(Curve(label, steps, values, None, None, color, style, 1.6, marker))
                label = ""  # a run is named once, by the first of its curves
    return curves


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or SVG, by the path's ending, whole or not at all."""
    write_bytes(path, figure_bytes(figure, path.suffix))


def figure_bytes(figure: Figure, suffix: str = ".png") -> bytes:
    """Encode a figure as PNG or SVG."""
    buffer = BytesIO()
    if suffix == ".svg":
        # Text stays text, and neither the clock nor chance gets into the file.
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "hyq"}):
            figure.savefig(buffer, format="svg", metadata={"Date": None})
    else:
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
