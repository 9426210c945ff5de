"""A suite: its runs grouped by algorithm and setting, summed up in a figure, a table and a page."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, get_args

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import FloatArray
from hyq.experts.lock import LockData
from hyq.report.curves import Curve, Level, Panel, aggregate, draw_curves
from hyq.report.html import publish
from hyq.report.records import (
    ALGORITHMS,
    RunResult,
    SuiteRecords,
    algorithm_color,
    algorithm_name,
    grouped,
    is_offline,
)
from hyq.report.stats import StepsToSolve, bootstrap_interval, interquartile_mean
from hyq.report.tables import TextTable, number

PEAK_ALGORITHMS = ("cql",)
"""Algorithms evaluated by the best point of their curve, as the paper evaluates CQL."""
FEWEST_FOR_INTERVAL = 3
"""Seeds below which resampling them says nothing about how far others would differ."""
GRID_POINTS = 200
COLUMNS = ("setting", "algorithm", "solved", "steps to solve", "return", "95% interval", "sec")
SUCCESS_COLUMNS = ("setting", "algorithm", "seeds", "success", "95% interval", "return", "sec")
OVERALL_COLUMNS = ("algorithm", "tasks", "runs", "success", "95% interval", "mean", "lowest task")
DIAGNOSTICS = {
    "iteration": "iteration",
    "online_steps": "online steps",
    "eval_return": "eval. return",
    "success": "success rate",
    "depth": "depth",
    "recent_return": "last episodes",
    "td_offline": "TD error, offline",
    "td_online": "TD error, online",
    "offline_share": "offline share",
    "start_q": "predicted value",
    "start_return": "return from start",
    "offline_residual": "residual offline",
    "online_residual": "residual online",
    "realised_offline_share": "offline share, realised",
}
RECORDS_SHOWN = 8
ABLATION_COLORS = ("#0a9396", "#7f4f24", "#023e8a", "#c51bc5", "#6b7000")
ABLATION_DASHES = ("2 3", "10 3 2 3", "4 2", "14 3")
"""Ablations of one algorithm differ by these, cycled through separately."""


@dataclass(frozen=True)
class Measure:
    """What a suite's runs are compared by."""

    column: str
    """Of the records."""
    label: str
    range: tuple[float, float] | None = None
    """Where it has bounds."""
    log_x: bool = True
    """Whether it is drawn against the logarithm of online steps."""


RETURN = Measure("eval_return", "return of the policy")
LOCK_RETURN = Measure("eval_return", "return of the policy", (0, 1))
SUCCESS = Measure("success", "success rate", (0, 1), log_x=False)
"""Share of evaluation episodes that succeed, where a return says so; its budget is a task's own."""


def measure_of(runs: Sequence[RunResult]) -> Measure:
    """Choose the success rate where all runs have it."""
    if runs[0].on_lock:
        return LOCK_RETURN
    begun = [run for run in runs if run.rows]
    return SUCCESS if begun and all(run.points("success")[0] for run in begun) else RETURN


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

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The summaries of the runs that ended."""
        return [run.summary for run in self.runs if run.summary is not None]

    @property
    def drawn(self) -> list[RunResult]:
        """The runs that a curve sums up: not those under way, where all take the same steps."""
        if self.measure is not SUCCESS:
            return [*self.runs]
        return [run for run in self.runs if run.summary is not None]

    @property
    def scores(self) -> list[float]:
        """One value a seed: the last, or the peak where that is the custom."""
        if self.measure is SUCCESS:
            return [run.points("success")[1][-1] for run in self.drawn]
        key = "peak_return" if self.algorithm in PEAK_ALGORITHMS else "eval_return"
        return [summary[key] for summary in self.finished]

    @property
    def mean(self) -> float:
        """The interquartile mean of the scores."""
        return interquartile_mean(np.array(self.scores))

    @property
    def median(self) -> float:
        """The median of the scores, at which an algorithm that never acts is drawn."""
        return float(np.median(self.scores))

    @property
    def steps_to_solve(self) -> StepsToSolve:
        """Online steps until solved."""
        ends = [(one.get("solved_at"), one["online_steps"]) for one in self.finished]
        steps = [end if solved_at is None else solved_at for solved_at, end in ends]
        return StepsToSolve.of(steps, [one["solved"] for one in self.finished])

    def curve(self, grid: FloatArray, y: str = "eval_return") -> Curve:
        """Return the learning curve of its runs, summed up."""
        low, middle, high = aggregate(self.drawn, grid, y)
        color = algorithm_color(self.algorithm)
        return Curve(self.label, grid, middle, low, high, color, seeds=len(self.drawn))

    def cells(self, rng: np.random.Generator) -> tuple[str, ...]:
        """Return the line's row of the table."""
        shown = "{:.3f}".format if self.measure.range else number
        solve, interval = self.steps_to_solve, "-"
        if len(self.scores) >= FEWEST_FOR_INTERVAL:
            bounds = bootstrap_interval([self.scores], rng)
            interval = " to ".join(map(shown, bounds))
        name, score = (self.panel, self.label), (shown(self.mean), interval)
        seconds = f"{np.median([summary['wall_seconds'] for summary in self.finished]):,.0f}"
        if self.measure is SUCCESS:
            returns = np.array([summary["eval_return"] for summary in self.finished])
            return *name, str(solve.runs), *score, number(interquartile_mean(returns)), seconds
        steps = "-" if is_offline(self.algorithm) else str(solve)
        return *name, f"{solve.solved}/{solve.runs}", steps, *score, seconds


@dataclass(frozen=True)
class SuiteResult:
    """A suite's records, grouped into lines."""

    records: SuiteRecords
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, path: Path) -> "SuiteResult":
        """Read whatever has been recorded so far."""
        records = SuiteRecords.read(path)
        if all(run.summary is None for run in records.runs):
            raise HyqError(f"{path} has no finished run to report yet")
        return cls(records, tuple(group_runs(records.runs)))

    @property
    def measure(self) -> Measure:
        """What its runs are compared by."""
        return self.lines[0].measure

    @property
    def shares_scale(self) -> bool:
        """Whether all panels are of one environment, so that their returns can be compared."""
        return len({run.setting("env") for run in self.records.runs}) == 1

    @property
    def finished(self) -> list[Line]:
        """The lines of which a run has ended."""
        return [line for line in self.lines if line.finished]

    @property
    def main(self) -> list[Line]:
        """Those that the figure and the conclusion are about."""
        return [line for line in self.finished if line.is_main]

    @property
    def grid(self) -> FloatArray:
        """Steps to read every curve at, evenly on the axis."""
        taken = [row["online_steps"] for run in self.records.runs for row in run.rows]
        taken = [steps for steps in taken if steps > 0]  # an agent may pretrain before it acts
        first, last = min(taken, default=1), max(taken, default=10)
        if not self.measure.log_x:
            return np.linspace(0, last, GRID_POINTS + 1)
        return np.geomspace(max(first / 2, 1), max(last, 2), GRID_POINTS)

    def conclusion(self) -> str:
        """Say which algorithm was best in each setting, in one sentence."""
        panels = grouped(self.main, lambda line: line.panel)
        if self.measure is SUCCESS:
            means = {name: interquartile_mean(of) for name, of in _over_tasks(self.main).items()}
            ranked = sorted(means, key=lambda name: -means[name])
            listed = ", ".join(f"{name} {means[name]:.2f}" for name in ranked)
            best = (max(on, key=lambda line: line.mean) for on in panels.values())
            highest = ", ".join(f"{line.label} {line.mean:.2f} on {line.panel}" for line in best)
            return f"Success rate at the end, over the tasks: {listed}. Highest: {highest}."
        return " ".join(f"On {panel_title(name)}, {_best(on)}." for name, on in panels.items())


def _over_tasks(lines: Iterable[Line]) -> dict[str, FloatArray]:
    """Collect the scores of every algorithm, all tasks together."""
    groups = grouped(lines, lambda line: line.label)
    return {name: np.concatenate([line.scores for line in on]) for name, on in groups.items()}


def _best(lines: Sequence[Line]) -> str:
    """Name the line that solved most, with the fewest steps; else that of the highest return."""

    def merit(line: Line) -> tuple[float, ...]:
        solve = line.steps_to_solve
        return (solve.solved / solve.runs, -solve.median, line.mean) if solve.solved else (0.0,)

    best = max(lines, key=merit)
    solve = best.steps_to_solve
    if not solve.solved:
        best = max(lines, key=lambda line: line.mean)
        return f"no run solved it, and {best.label} has the highest return, {number(best.mean)}"
    after = "" if is_offline(best.algorithm) else f", after {solve} online steps (median)"
    return f"{best.label} solved {solve.solved} of {solve.runs}{after}"


Described = tuple[RunResult, list[str], str, bool]
"""A run, the panels it is drawn in, what its label adds, and whether its line is a main one."""


def group_runs(runs: Sequence[RunResult]) -> list[Line]:
    """Group runs whose specs differ in the seed alone."""
    groups: dict[tuple[str, str, str, bool], list[RunResult]] = {}
    measure = measure_of(runs)
    for run, panels, suffix, main in (_describe_lock if runs[0].on_lock else _describe_deep)(runs):
        algorithm = run.setting("algorithm")
        peak = " (peak)" if algorithm in PEAK_ALGORITHMS and measure is not SUCCESS else ""
        name = algorithm_name(algorithm, run.setting("actions", "discrete"))
        label = f"{name}{peak}{suffix}"
        for panel in panels:
            groups.setdefault((label, panel, algorithm, main), []).append(run)
    lines = [Line(*key, tuple(members), measure) for key, members in groups.items()]
    panels = list(dict.fromkeys(line.panel for line in lines))
    order = [*ALGORITHMS, *(line.algorithm for line in lines)]
    return sorted(
        lines,
        key=lambda line: (panels.index(line.panel), not line.is_main, order.index(line.algorithm)),
    )


def _describe_lock(runs: Sequence[RunResult]) -> Iterator[Described]:
    several_horizons = len({run.setting("horizon") for run in runs}) > 1
    datasets = list(dict.fromkeys(run.setting("data") for run in runs))
    for run in runs:
        algorithm, data, suffix = run.setting("algorithm"), run.setting("data"), ""
        if several_horizons and algorithm == "hyq":
            suffix = f", {data} data"
        anti_reward, share = run.setting("anti_reward_probability"), run.setting("offline_share")
        if anti_reward != 0.5:
            suffix += f", anti-reward probability {anti_reward:g}"
        if share != 0.5:
            suffix += f", offline share {share:g}"
        panels = [data]
        if several_horizons:
            panels = [f"H = {run.setting('horizon')}"]
        elif algorithm in ("online-only", "briee"):
            panels = datasets  # it never sees the data
        yield run, panels, suffix, anti_reward == share == 0.5


def _describe_deep(runs: Sequence[RunResult]) -> Iterator[Described]:
    """Draw a panel a problem where it has half random data, or else a panel a dataset."""
    by_problem = any(str(run.setting("data")).endswith("/half") for run in runs)
    for run in runs:
        data = str(run.setting("data"))
        problem, _, quality = data.rpartition("/")
        main = not by_problem or quality == "half"
        suffix = "" if main else f", {quality} data"
        yield run, [problem if by_problem else data], suffix, main


def panel_title(panel: str) -> str:
    """Say in full what a panel shows."""
    return f"optimal {panel} data" if panel in get_args(LockData) else panel


def curves_and_levels(
    lines: Iterable[Line], grid: FloatArray, y: str, level: Callable[[Line], float | None]
) -> tuple[list[Curve], list[Level]]:
    """Draw what acts as curves, and what never acts as dashed levels."""
    curves, levels = [], []
    for line in lines:
        if not is_offline(line.algorithm):
            curves.append(line.curve(grid, y))
        elif (value := level(line)) is not None:
            levels.append(Level(value, line.label, color=algorithm_color(line.algorithm)))
    return curves, levels


def draw_suite(result: SuiteResult) -> Figure:
    """Draw the main lines: the paper's figure, a panel a setting."""
    grid, measure, panels = result.grid, result.measure, []
    ends = float(grid[0]), float(grid[-1])
    x_label = "online steps, roll-ins included" if measure is LOCK_RETURN else "online steps"
    y_range = (-0.03, 1.08) if measure.range else None
    for name, lines in grouped(result.main, lambda line: line.panel).items():
        curves, levels = curves_and_levels(lines, grid, measure.column, lambda line: line.median)
        labels, x_range, log = (x_label, measure.label), ends, 10
        if not measure.log_x:  # up to the task's own budget
            taken = [row["online_steps"] for line in lines for run in line.runs for row in run.rows]
            x_range, log = (0, max(taken)), 0
        panels.append(Panel(panel_title(name), curves, levels, *labels, x_range, y_range, log))
    title, columns = result.records.manifest["title"], 4 if len(panels) <= 4 else 3
    return draw_curves(panels, title=title, columns=columns, share_y=result.shares_scale)


def suite_table(result: SuiteResult, rng: np.random.Generator) -> TextTable:
    """Lay out one row an algorithm and setting."""
    rows = [line.cells(rng) for line in result.finished]
    columns = SUCCESS_COLUMNS if result.measure is SUCCESS else COLUMNS
    return TextTable(columns, rows, result.records.manifest["title"], left=2)


def overall_table(result: SuiteResult, rng: np.random.Generator) -> TextTable | None:
    """Sum every algorithm up over the tasks, where their scores are on one scale."""
    if result.measure is not SUCCESS:
        return None
    rows = []
    for name, lines in grouped(result.finished, lambda line: line.label).items():
        scores = np.concatenate([line.scores for line in lines])
        low, high = bootstrap_interval([line.scores for line in lines], rng)
        lowest = min(lines, key=lambda line: line.mean)
        middle = f"{interquartile_mean(scores):.3f}", f"{low:.3f} to {high:.3f}"
        ends = f"{scores.mean():.3f}", f"{lowest.mean:.3f} ({lowest.panel})"
        rows.append((name, str(len(lines)), str(len(scores)), *middle, *ends))
    return TextTable(OVERALL_COLUMNS, rows, "Over the tasks")


def report_suite(path: Path, console: Console) -> None:
    """Write the figure and the page, and print the table."""
    result = SuiteResult.read(path)
    rng = Streams(0).generator("report")
    if (overall := overall_table(result, rng)) is not None:
        console.print(overall.rich())
    publish(
        result.records,
        draw_suite(result),
        suite_table(result, rng),
        console,
        result.conclusion(),
        "suite.html",
        measure=result.measure,
        overall=overall,
        peak=any(line.label.endswith("(peak)") for line in result.finished),
        fewest=FEWEST_FOR_INTERVAL,
        lines=[_line_content(line) for line in result.lines if line.is_main or line.finished],
        chart=chart(result),
    )


def chart(result: SuiteResult) -> dict[str, Any]:
    """Return what the page's script draws."""
    grid = result.grid
    ablations = dict.fromkeys(line.label for line in result.lines if not line.is_main)
    looks = zip(cycle(ABLATION_COLORS), cycle(ABLATION_DASHES), strict=False)
    look_of = dict(zip(ablations, looks, strict=False))
    series = []
    for line in result.finished:
        usual = algorithm_color(line.algorithm), "6 4" if is_offline(line.algorithm) else ""
        color, dashes = look_of.get(line.label, usual)
        entry: dict[str, Any] = {"panel": panel_title(line.panel), "label": line.label}
        entry |= {"color": color, "dashes": dashes, "shown": line.is_main}
        if is_offline(line.algorithm):
            entry["level"] = line.median
        else:
            edges = np.stack(aggregate(line.drawn, grid, result.measure.column)).round(4)
            known = ~np.isnan(edges[0])  # up to where the first run ended unsolved
            entry["low"], entry["middle"], entry["high"] = edges[:, known].tolist()
        series.append(entry)
    return {
        "panels": [panel_title(name) for name in grouped(result.lines, lambda line: line.panel)],
        "range": result.measure.range,
        "label": result.measure.label,
        "log": result.measure.log_x,
        "shares_scale": result.shares_scale,
        "grid": grid.round(1).tolist(),
        "series": series,
    }


def _line_content(line: Line) -> dict[str, Any]:
    runs = []
    for run in line.runs:
        names = [name for name in DIAGNOSTICS if any(name in row for row in run.rows)]
        picked = np.unique(np.linspace(0, len(run.rows) - 1, RECORDS_SHOWN).astype(int))
        rows = [[number(run.rows[i].get(name), 4) for name in names] for i in picked if run.rows]
        ended = run.summary and ("solved" if run.summary["solved"] else "not solved")
        if run.summary and line.measure is SUCCESS:  # which has no threshold to reach
            ended = "ended"
        table = TextTable([DIAGNOSTICS[name] for name in names], rows, left=0)
        runs.append({"seed": run.setting("seed"), "state": ended or "under way", "records": table})
    return {"name": f"{line.panel} · {line.label}", "runs": runs}
