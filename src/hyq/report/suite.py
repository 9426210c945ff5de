"""A suite: its runs grouped by algorithm and setting, summed up in a figure, a table and a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.seeding import Streams
from hyq.core.types import FloatArray
from hyq.experts.lock import LockData
from hyq.report.figures import (
    DASHED,
    DASHES,
    FEWEST_FOR_BAND,
    Curve,
    Level,
    Panel,
    level,
    run_points,
    summed,
)
from hyq.report.html import Section, note, publish
from hyq.report.records import (
    ALGORITHMS,
    RunResult,
    SuiteRecords,
    algorithm_color,
    algorithm_name,
    differences,
    grouped,
    in_words,
    is_offline,
)
from hyq.report.stats import StepsToSolve, bootstrap_interval, interquartile_mean
from hyq.report.tables import TextTable, number

PEAK_ALGORITHMS = ("cql",)
"""Algorithms evaluated by the best point of their curve, as the paper evaluates CQL."""
FEWEST_FOR_INTERVAL = 3
"""Seeds below which resampling them says nothing about how far others would differ."""
COLUMNS = ("setting", "algorithm", "solved", "steps to solve", "return", "95% interval", "sec")
SUCCESS_COLUMNS = ("setting", "algorithm", "seeds", "success", "95% interval", "return", "sec")
OVERALL_COLUMNS = ("algorithm", "tasks", "runs", "success", "95% interval", "mean", "lowest task")
DIAGNOSTICS = (
    "iteration", "online_steps", "eval_return", "success", "depth", "recent_return", "td_offline",
    "td_online", "offline_share", "start_q", "start_return", "offline_residual", "online_residual",
    "realised_offline_share",
)  # fmt: skip
RECORDS_SHOWN = 8
ABLATION_COLORS = ("#0a9396", "#7f4f24", "#023e8a", "#c51bc5", "#6b7000")
"""Ablations of one algorithm differ by these and by dashes, cycled through separately."""


@dataclass(frozen=True)
class Measure:
    """What a suite's runs are compared by."""

    column: str
    """Of the records."""
    label: str
    range: tuple[float, float] | None = None
    """Where it has bounds."""
    log_x: int = 10
    """Base of the logarithm of online steps that it is drawn against."""


RETURN = Measure("eval_return", "return of the policy")
LOCK_RETURN = Measure("eval_return", "return of the policy", (0, 1))
SUCCESS = Measure("success", "success rate", (0, 1), log_x=0)
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
    def scores(self) -> list[float]:
        """One value a seed that ended: the last, or the peak where that is the custom."""
        if self.measure is SUCCESS:
            ended = (run for run in self.runs if run.summary is not None)
            return [run.points("success")[1][-1] for run in ended]
        key = "peak_return" if self.algorithm in PEAK_ALGORITHMS else "eval_return"
        return [summary[key] for summary in self.finished]

    @property
    def mean(self) -> float:
        """The interquartile mean of the scores."""
        return interquartile_mean(np.array(self.scores))

    @property
    def steps_to_solve(self) -> StepsToSolve:
        """Online steps until solved."""
        ends = [(one.get("solved_at"), one["online_steps"]) for one in self.finished]
        steps = [end if solved_at is None else solved_at for solved_at, end in ends]
        return StepsToSolve.of(steps, [one["solved"] for one in self.finished])

    def reached(self, said: str = "") -> str:
        """Say how many runs solved the problem, and after how many steps."""
        solve = self.steps_to_solve
        after = "" if is_offline(self.algorithm) else f", after {solve} online steps (median)"
        return f"{self.label}{said} {solve.solved} of {solve.runs}{after}"

    def interval(self, rng: np.random.Generator) -> tuple[float, float] | None:
        """Return where the mean of other seeds would lie; of few seeds nothing is known."""
        if len(self.scores) < FEWEST_FOR_INTERVAL:
            return None
        return bootstrap_interval([self.scores], rng)

    def drawn(self, rng: np.random.Generator, **look: Any) -> Curve | Level | None:
        """Return its learning curve, or its level where it never acts."""
        look = {"color": algorithm_color(self.algorithm), "shown": self.is_main, **look}
        if not is_offline(self.algorithm):
            interval = self.interval(rng) if self.measure is SUCCESS else None
            points = [run_points(run, self.measure.column) for run in self.runs]
            return summed(self.label, points, interval=interval, **look)
        return level(self.label, self.scores, **{"dashes": DASHED, **look}) if self.scores else None

    def cells(self, rng: np.random.Generator) -> tuple[str, ...]:
        """Return the line's row of the table."""
        shown = "{:.3f}".format if self.measure.range else number
        solve, bounds = self.steps_to_solve, self.interval(rng)
        interval = "-" if bounds is None else " to ".join(map(shown, bounds))
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
        """Those that the conclusion is about, and that are drawn at first."""
        return [line for line in self.finished if line.is_main]

    def conclusion(self) -> list[str]:
        """Say which algorithm was best in each setting, and what that leaves out."""
        panels = grouped(self.main, lambda line: line.panel)
        if self.measure is SUCCESS:
            said = _over_tasks_said(panels)
        else:
            parts = [f"On {panel_title(name)}, {_best(on)[0]}" for name, on in panels.items()]
            said = "; ".join([parts[0], *(f"o{part[1:]}" for part in parts[1:])]) + "."
            also = [
                f"on {panel_title(name)} {text}"
                for name, on in panels.items()
                if (text := _best(on)[1])
            ]
            said += f"\nAlso solved: {'; '.join(also)}." * bool(also)
        return [*said.split("\n"), *self._left_out()]

    def _left_out(self) -> list[str]:
        found = []
        few = [line for line in self.main if len(line.finished) < FEWEST_FOR_BAND]
        if names := [f"{line.label} on {panel_title(line.panel)}" for line in few]:
            found.append(f"Fewer than {FEWEST_FOR_BAND} seeds have ended: {listed(names)}.")
        if missing := self.records.not_begun:
            found.append(f"Nothing is recorded yet of {listed(missing)}.")
        taken = {
            line.label: max(one["online_steps"] for one in line.finished)
            for line in self.main
            if not is_offline(line.algorithm) and not line.steps_to_solve.solved
        }
        if self.measure is LOCK_RETURN and len(set(taken.values())) > 1:
            given = ", ".join(f"{name} {steps:,}" for name, steps in taken.items())
            found.append(f"What did not solve it was not given the same online steps: {given}.")
        if others := dict.fromkeys(line.label for line in self.finished if not line.is_main):
            found.append(f"Hidden in the figure until clicked: {listed(others)}.")
        return found


def listed(names: Iterable[str]) -> str:
    """Name things in a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _over_tasks_said(panels: dict[str, list[Line]]) -> str:
    """Compare algorithms on the tasks that all of them have."""
    lines = [line for on in panels.values() for line in on]
    labels = dict.fromkeys(line.label for line in lines)
    common = [on for on in panels.values() if len(on) == len(labels)] or list(panels.values())
    means = {name: interquartile_mean(of) for name, of in _over_tasks(chain(*common)).items()}
    ranked = sorted(means, key=lambda name: -means[name])
    listed = ", ".join(f"{name} {means[name]:.2f}" for name in ranked)
    tasks = "the one task" if len(common) == 1 else f"the {len(common)} tasks"
    if len(labels) == 1:
        listed += ", and nothing to compare it with yet"
    else:
        best = [max(on, key=lambda line: line.mean) for on in panels.values()]
        listed += "; highest: "
        listed += ", ".join(f"{line.label} {line.mean:.2f} on {line.panel}" for line in best)
    several = " that all have" if len(common) < len(panels) else ""
    return f"Success rate at the end, over {tasks}{several} (interquartile mean): {listed}."


def _over_tasks(lines: Iterable[Line]) -> dict[str, FloatArray]:
    """Collect the scores of every algorithm, all tasks together."""
    groups = grouped(lines, lambda line: line.label)
    return {name: np.concatenate([line.scores for line in on]) for name, on in groups.items()}


def _best(lines: Sequence[Line]) -> tuple[str, str]:
    """Say what solved most, with the fewest steps, else had the highest return; and what else."""

    def merit(line: Line) -> tuple[float, ...]:
        solve = line.steps_to_solve
        return solve.solved / solve.runs, -solve.median, line.mean

    first, *rest = sorted(lines, key=merit, reverse=True)
    if first.steps_to_solve.solved:
        return first.reached(" solved"), ", ".join(
            line.reached() for line in rest if line.steps_to_solve.solved
        )
    best = max(lines, key=lambda line: line.mean)
    return f"no run solved it, and {best.label} has the highest return, {number(best.mean)}", ""


def group_runs(runs: Sequence[RunResult]) -> list[Line]:
    """Group runs whose specs differ in the seed alone."""
    places = _lock_places(runs) if runs[0].on_lock else _deep_places(runs)
    measure, lines = measure_of(runs), []
    for (panel, algorithm), here in grouped(
        places, lambda p: (p[1], p[0].setting("algorithm"))
    ).items():
        name = algorithm_name(algorithm, here[0][0].setting("actions", "discrete"))
        if algorithm in PEAK_ALGORITHMS and measure is not SUCCESS:
            name += " (peak)"
        changes = map(in_words, differences([run for run, *_ in here]))
        named = [
            (run, suffix, change, main)
            for (run, _, suffix, main), change in zip(here, changes, strict=True)
        ]
        for (suffix, change, main), of in grouped(named, lambda one: one[1:]).items():
            label = ", ".join(filter(None, (name, suffix, change)))
            members = tuple(run for run, *_ in of)
            lines.append(Line(label, panel, algorithm, main and not change, members, measure))
    panels = list(dict.fromkeys(panel for _, panel, *_ in places))
    order = [*ALGORITHMS, *(line.algorithm for line in lines)]
    return sorted(
        lines,
        key=lambda line: (panels.index(line.panel), not line.is_main, order.index(line.algorithm)),
    )


Place = tuple[RunResult, str, str, bool]
"""A run, a panel it is drawn in, what its label adds, and whether its line is a main one."""


def _lock_places(runs: Sequence[RunResult]) -> list[Place]:
    several_horizons = len({run.setting("horizon") for run in runs}) > 1
    datasets = list(dict.fromkeys(run.setting("data") for run in runs))
    found: list[Place] = []
    for run in runs:
        algorithm, data = run.setting("algorithm"), run.setting("data")
        if several_horizons:
            suffix = f"{data} data" if algorithm == "hyq" else ""
            found.append((run, f"H = {run.setting('horizon')}", suffix, True))
        else:  # what never sees the data belongs beside every dataset
            panels = datasets if algorithm in ("online-only", "briee") else [data]
            found += [(run, panel, "", True) for panel in panels]
    return found


def _deep_places(runs: Sequence[RunResult]) -> list[Place]:
    """Draw a panel a problem where it has half random data, or else a panel a dataset."""
    by_problem = any(str(run.setting("data")).endswith("/half") for run in runs)
    found: list[Place] = []
    for run in runs:
        data = str(run.setting("data"))
        problem, _, quality = data.rpartition("/")
        main = not by_problem or quality == "half"
        suffix = "" if main else f"{quality} data"
        found.append((run, problem if by_problem else data, suffix, main))
    return found


def panel_title(panel: str) -> str:
    """Say in full what a panel shows."""
    return f"optimal {panel} data" if panel in get_args(LockData) else panel


def suite_panels(result: SuiteResult, rng: np.random.Generator) -> list[Panel]:
    """Draw a panel a setting: the main lines as in the paper's figure, and the others hidden."""
    measure = result.measure
    looks = zip(cycle(ABLATION_COLORS), cycle(DASHES[1:]), strict=False)
    ablations = dict.fromkeys(line.label for line in result.lines if not line.is_main)
    look_of = dict(zip(ablations, looks, strict=False))
    x_label = "online steps, roll-ins included" if measure is LOCK_RETURN else "online steps"
    y_range = measure.range if measure is SUCCESS else None
    bars = "bar at the end: 95% interval of the mean" if measure is SUCCESS else ""
    panels = []
    for name, lines in grouped(result.lines, lambda line: line.panel).items():
        drawn = []
        for line in lines:
            color, dashes = look_of.get(line.label, (algorithm_color(line.algorithm), ""))
            look = {"color": color} | ({"dashes": dashes} if dashes else {})
            drawn.append(line.drawn(rng, **look))
        curves = [one for one in drawn if isinstance(one, Curve)]
        levels = [one for one in drawn if isinstance(one, Level)]
        thresholds = {run.setting("threshold") for line in lines for run in line.runs} - {None}
        levels += [Level(value, f"solved: {value:g}") for value in thresholds]
        labels = x_label, measure.label, None, y_range, measure.log_x
        panels.append(Panel(panel_title(name), curves, levels, *labels, note=bars))
    return panels


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
    overall, table = overall_table(result, rng), suite_table(result, rng)
    peak = any(line.label.endswith("(peak)") for line in result.finished)
    said = note("suite_table" if overall is None else "success_table", fewest=FEWEST_FOR_INTERVAL)
    said += f" {note('peak')}" * peak
    sections = [Section("Every run", parts=[_every_run(line) for line in result.lines])]
    if overall is not None:
        console.print(overall.rich())
        sections.insert(0, Section("Over the tasks", table=overall, note=note("overall")))
    panels = suite_panels(result, rng)
    publish(
        result.records,
        panels,
        table,
        console,
        result.conclusion(),
        sections,
        notes=(note("suite_figure"), said),
        share_y=result.shares_scale,
        columns=4 if len(panels) == 4 else 3,
    )


def _every_run(line: Line) -> Section:
    """List some records of each run, folded away."""
    parts = []
    for run in line.runs:
        names = [name for name in DIAGNOSTICS if any(name in row for row in run.rows)]
        picked = np.unique(np.linspace(0, len(run.rows) - 1, RECORDS_SHOWN).astype(int))
        rows = [[number(run.rows[i].get(name), 4) for name in names] for i in picked if run.rows]
        ended = "under way"
        if run.summary is not None:  # a success rate has no threshold to reach
            solved = "solved" if run.summary["solved"] else "not solved"
            ended = "ended" if line.measure is SUCCESS else solved
        table = TextTable([name.replace("_", " ") for name in names], rows, left=0)
        parts.append(Section(f"seed {run.setting('seed')}: {ended}", table=table))
    return Section(f"{line.panel} · {line.label}", parts=parts, folded=True)
