"""Figures as data: panels of curves and levels, drawn by a page's script and by matplotlib."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyq.core.types import FloatArray
from hyq.report.records import OTHER_COLOR, RunResult
from hyq.report.stats import band

GREY = "#7a7a7a"
DASHED, DOTTED = "6 4", "2 3"
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2")
MOST_POINTS = 300
FEWEST_FOR_BAND = 3
"""Seeds from which on a median and a band stand for the runs; fewer are drawn one by one."""
FEW_POINTS = 12
"""A curve of so few evaluations has a mark at each."""
Points = tuple[Sequence[float] | FloatArray, Sequence[float] | FloatArray]


@dataclass(frozen=True)
class Curve:
    """One line of a panel, of one or several seeds."""

    label: str
    x: Sequence[float] | FloatArray
    y: Sequence[float] | FloatArray
    low: Sequence[float] | FloatArray = ()
    high: Sequence[float] | FloatArray = ()
    others: Sequence[Points] = ()
    """Single runs, drawn thin: all but the first of few, or what lies beyond the median's end."""
    interval: tuple[float, float] | None = None
    """Where other seeds would end, drawn beside the end."""
    color: str = OTHER_COLOR
    dashes: str = ""
    marker: str = ""
    kind: str = "line"
    """Or points without a line, or an area down to the axis, as of a histogram."""
    seeds: int = 0
    """How many runs it sums up; 0 for what is not a run."""
    shown: bool = True
    """Whether it is drawn at first."""

    @property
    def values(self) -> list[float]:
        """Every value that has to fit on the axis."""
        beside = [value for _, values in self.others for value in values]
        found = [*self.y, *self.low, *self.high, *beside, *(self.interval or ())]
        return [float(value) for value in found if np.isfinite(value)]

    @property
    def end(self) -> tuple[float, float] | None:
        """Where its name stands."""
        ends = [(x[-1], y[-1]) for x, y in ((self.x, self.y), *self.others) if len(x)]
        return (float(ends[0][0]), float(ends[0][1])) if ends else None


@dataclass(frozen=True)
class Level:
    """A horizontal line: the return of an algorithm that never acts, or a mark to compare with."""

    value: float
    label: str = ""
    low: float | None = None
    high: float | None = None
    color: str = GREY
    dashes: str = DASHED
    seeds: int = 0
    shown: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    drawn: Sequence[Curve | Level]
    """All that a reader can switch on."""
    x_label: str = "online steps"
    y_label: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    log_x: int = 0
    """Base of a logarithmic axis, on which 0 has a place left of the first power; 0: linear."""
    log_y: bool = False
    note: str = ""

    @property
    def shown(self) -> list[Curve | Level]:
        """What is drawn at first."""
        return [one for one in self.drawn if one.shown]

    @property
    def curves(self) -> list[Curve]:
        """What is drawn of it that is no level."""
        return [one for one in self.drawn if isinstance(one, Curve)]

    @property
    def levels(self) -> list[Level]:
        """The horizontal lines."""
        return [one for one in self.drawn if isinstance(one, Level)]

    @property
    def said(self) -> str:
        """What stands below the title: how many seeds there are, and what the band is."""
        counts = sorted({one.seeds for one in self.shown if one.seeds})
        if not counts:
            return self.note
        several = f"{counts[-1]} seeds" if counts[-1] > 1 else "1 seed"
        if len(counts) > 1:
            several = f"{counts[0]} to {counts[-1]} seeds, as named"
        drawn = f"median of {several}, 20th to 80th percentile"
        if counts[-1] < FEWEST_FOR_BAND:
            drawn = several if counts[-1] == 1 else f"{several}, a line each"
        return f"{drawn}; {self.note}" if self.note else drawn

    def name(self, one: Curve | Level) -> str:
        """Return a label, with the number of seeds where it is not everyone's."""
        counts = {other.seeds for other in self.shown if other.seeds}
        plural = "s" * (one.seeds > 1)
        several = f" ({one.seeds} seed{plural})" if one.seeds and len(counts) > 1 else ""
        return one.label and f"{one.label}{several}"

    @property
    def first_power(self) -> float:
        """Where a logarithmic axis becomes one: at its smallest value above 0."""
        values = [x for curve in self.curves for x in curve.x if x > 0]
        values += [x for curve in self.curves for xs, _ in curve.others for x in xs if x > 0]
        return float(min(values, default=1.0))

    def extent(self) -> tuple[float, float] | None:
        """Return the range of the values."""
        values = [v for one in self.shown if isinstance(one, Curve) for v in one.values]
        values += [one.value for one in self.shown if isinstance(one, Level)]
        return (min(values), max(values)) if values else None


def summed(label: str, runs: Iterable[tuple[Points, bool]], **look: Any) -> Curve:
    """Sum the learning curves of several seeds up: their median, and the 20th and 80th percentile.

    A run is its points, and whether it ended because it solved its problem: then it keeps its last
    value until the last seed ends. Nothing is said before the first point of a run, nor of what
    comes after its last: the median ends where the first run stopped unsolved, because those that
    ran longer may be the lucky ones, and beyond they are drawn one by one.
    """
    known = [(np.asarray(x, float), np.asarray(y, float), held) for (x, y), held in runs if len(x)]
    look = {"marker": "o" * all(len(x) <= FEW_POINTS for x, _, _ in known), **look}
    lines: list[Points] = [(x, y) for x, y, _ in known]
    if len(known) < FEWEST_FOR_BAND:
        first, *others = lines or [((), ())]
        return Curve(label, *first, others=others, seeds=len(known), **look)
    grid = np.unique(np.concatenate([x for x, _, _ in known]))
    curves = [
        np.interp(grid, x, y, left=np.nan, right=y[-1] if held else np.nan) for x, y, held in known
    ]
    low, middle, high = band(np.stack(curves))
    here = np.flatnonzero(np.isfinite(middle))
    end = grid[here[-1]] if len(here) else -np.inf
    if len(here) > MOST_POINTS:
        here = here[np.linspace(0, len(here) - 1, MOST_POINTS).round().astype(int)]
    beyond: list[Points] = [
        (x[x >= end], y[x >= end]) for x, y, held in known if x[-1] > end and not held
    ]
    x, y, lower, upper = (values[here] for values in (grid, middle, low, high))
    return Curve(label, x, y, lower, upper, beyond, seeds=len(known), **look)


def level(label: str, values: Sequence[float], **look: Any) -> Level:
    """Sum the last values of several seeds up."""
    low, middle, high = (float(one[0]) for one in band(np.array(values, float)[:, None]))
    if len(values) >= FEWEST_FOR_BAND:
        look = {"low": low, "high": high, **look}
    return Level(middle, label, seeds=len(values), **look)


def run_points(run: RunResult, y: str, x: str = "online_steps") -> tuple[Points, bool]:
    """Return a column of a run's records, and whether it ended because there was no more to do."""
    solved = run.summary is not None and bool(run.summary.get("solved"))
    return run.points(y, x), solved


def content(panels: Sequence[Panel], share_y: bool = False) -> dict[str, Any]:
    """Return what a page's script draws."""
    return {"share_y": share_y, "panels": [_panel_content(panel) for panel in panels]}


def _panel_content(panel: Panel) -> dict[str, Any]:
    names = ("title", "x_label", "y_label", "x_range", "y_range", "log_x", "log_y")
    found = {name: getattr(panel, name) for name in names}
    found |= {"said": panel.said, "first": panel.first_power, "series": []}
    for one in panel.drawn:
        look = {name: getattr(one, name) for name in ("label", "color", "dashes", "shown")}
        look["name"] = panel.name(one)
        if isinstance(one, Level):
            entry: dict[str, Any] = {"level": one.value, "low": one.low, "high": one.high}
            entry["mark"] = not one.seeds
        else:
            entry = {name: getattr(one, name) for name in ("kind", "marker", "interval")}
            edges = {"x": one.x, "y": one.y, "low": one.low, "high": one.high}
            entry |= {name: rounded(values) for name, values in edges.items()}
            entry["others"] = [[rounded(x), rounded(y)] for x, y in one.others]
        found["series"].append(look | entry)
    return found


def rounded(values: Iterable[float]) -> list[float]:
    """Keep as many digits as can be seen."""
    return [float(f"{value:.6g}") for value in values]
