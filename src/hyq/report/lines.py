"""Runs that differ in the seed alone: how every report groups, measures, names and draws them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyq.core.seeding import Streams
from hyq.report.figures import DASHED, Curve, Level, Panel, level, run_points, summed
from hyq.report.records import (
    ALGORITHMS,
    RunResult,
    algorithm_color,
    algorithm_name,
    differences,
    grouped,
    in_words,
    is_offline,
)
from hyq.report.stats import StepsToSolve, bootstrap_interval, interquartile_mean

PEAK_ALGORITHMS = ("cql", "cql-block")
"""Algorithms evaluated by the best point of their curve, as the paper evaluates CQL."""
FEWEST_FOR_INTERVAL = 3
"""Seeds below which resampling them says nothing about how far others would differ."""
RECENT_EPISODES = 100
"""Training episodes that the moving average is over."""
FEWEST_EVALUATIONS = 3
"""Runs that are evaluated less often are compared by their training episodes."""


@dataclass(frozen=True)
class Measure:
    """What runs are compared by."""

    column: str
    """Of the records."""
    label: str
    range: tuple[float, float] | None = None
    """Where it has bounds."""


RETURN = Measure("eval_return", "return of the policy")
LOCK_RETURN = Measure("eval_return", "return of the policy", (0, 1))
SUCCESS = Measure("success", "success rate", (0, 1))
"""Share of evaluation episodes that succeed, where a return says so; its budget is a task's own."""
RECENT = Measure("recent_return", f"return of the last {RECENT_EPISODES} training episodes")


def measure_of(runs: Sequence[RunResult]) -> Measure:
    """Choose the success rate where all runs have it, training episodes where little else is."""
    if runs[0].on_lock:
        return LOCK_RETURN
    begun = [run for run in runs if run.rows]
    if begun and all(has_values([run], SUCCESS) for run in begun):
        return SUCCESS
    acting = [run for run in begun if run.acts]
    counts = [sum(row.get("eval_return") is not None for row in run.rows) for run in acting]
    few = bool(counts) and np.median(counts) < FEWEST_EVALUATIONS
    return RECENT if few and has_values(runs, RECENT) else RETURN


def has_values(runs: Iterable[RunResult], measure: Measure) -> bool:
    """Tell whether any run has a value of a measure."""
    return any(run.points(measure.column)[0] for run in runs)


@dataclass(frozen=True)
class Line:
    """The seeds of one algorithm in one setting."""

    label: str
    panel: str
    algorithm: str
    is_main: bool
    """One of the paper's algorithms in the paper's setting, rather than an ablation."""
    runs: tuple[RunResult, ...]
    measure: Measure = RETURN
    by_peak: bool = False

    @property
    def acts(self) -> bool:
        """Whether it takes steps in its environment."""
        return not is_offline(self.algorithm) and any(run.acts for run in self.runs)

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The summaries of the runs that ended."""
        return [run.summary for run in self.runs if run.summary is not None]

    @property
    def values(self) -> list[float]:
        """One of each run so far: the newest, or the peak where that is the custom."""
        column = self.measure.column
        curves = (
            [v for row in run.rows if (v := row.get(column)) is not None] for run in self.runs
        )
        return [max(curve) if self.by_peak else curve[-1] for curve in curves if curve]

    @property
    def scores(self) -> list[float]:
        """The values of the runs that ended."""
        return replace(self, runs=tuple(run for run in self.runs if run.summary)).values

    @property
    def mean(self) -> float:
        """The interquartile mean of the scores."""
        return interquartile_mean(np.array(self.scores))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the mean of other seeds would lie; of few seeds nothing is known."""
        return interval_of([self.scores]) if len(self.scores) >= FEWEST_FOR_INTERVAL else None

    @property
    def steps_to_solve(self) -> StepsToSolve:
        """Online steps until solved."""
        ends = [(one.get("solved_at"), one["online_steps"]) for one in self.finished]
        steps = [end if solved_at is None else solved_at for solved_at, end in ends]
        return StepsToSolve.of(steps, [one["solved"] for one in self.finished])

    def drawn(self, x: str = "online_steps", **look: Any) -> Curve | Level | None:
        """Return its curve; against online steps, of what takes none, its level."""
        look = {"color": algorithm_color(self.algorithm), "shown": self.is_main, **look}
        if x == "online_steps" and not self.acts:
            look = {"dashes": DASHED, **look}
            return level(self.label, self.values, **look) if self.values else None
        interval = self.interval if self.measure is SUCCESS else None
        points = [run_points(run, self.measure.column, x) for run in self.runs]
        return summed(self.label, points, interval=interval, **look)


def interval_of(tasks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return a 95% interval for the interquartile mean over tasks, the same on every page."""
    return bootstrap_interval(tasks, Streams(0).generator("report"))


Place = tuple[RunResult, str, str, bool]
"""A run, a panel it is drawn in, what its label adds, and whether its line is a main one."""


def group_runs(places: Sequence[Place], measure: Measure, by_peak: bool = False) -> list[Line]:
    """Group runs whose specs differ in the seed alone: the main lines of a panel come first."""
    lines = []
    for (panel, algorithm, suffix), here in grouped(
        places, lambda place: (place[1], str(place[0].setting("algorithm")), place[2])
    ).items():
        name = algorithm_name(algorithm, here[0][0].setting("actions", "discrete"))
        peak = by_peak and algorithm in PEAK_ALGORITHMS and measure is not SUCCESS
        changes = map(in_words, differences([run for run, *_ in here]))
        named = [(run, change, main) for (run, *_, main), change in zip(here, changes, strict=True)]
        for (change, main), of in grouped(named, lambda one: one[1:]).items():
            label = ", ".join(filter(None, (name + " (peak)" * peak, suffix, change)))
            members = tuple(run for run, *_ in of)
            usual = has_values(members, measure) or not has_values(members, RETURN)
            by = measure if usual else RETURN
            lines.append(Line(label, panel, algorithm, main and not change, members, by, peak))
    panels = list(dict.fromkeys(panel for _, panel, *_ in places))
    order = [*ALGORITHMS, *(line.algorithm for line in lines)]
    return sorted(
        lines,
        key=lambda line: (panels.index(line.panel), not line.is_main, order.index(line.algorithm)),
    )


def line_panel(
    title: str, drawn: Iterable[Curve | Level | None], runs: Iterable[RunResult] = (), **look: Any
) -> Panel:
    """Make a panel of what is drawn of some runs, and of the returns that count as solved."""
    thresholds = {run.setting("threshold") for run in runs} - {None}
    solved = [Level(value, f"solved: {value:g}") for value in sorted(thresholds)]
    return Panel(title, [*(one for one in drawn if one is not None), *solved], **look)


def listed(names: Iterable[str]) -> str:
    """Name things in a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def seeds_said(count: int) -> str:
    """Say how many seeds there are."""
    return f"{count} seed{'s' * (count > 1)}"
