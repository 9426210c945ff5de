"""A suite: its runs grouped by algorithm and setting, summed up in a figure, a table and a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path
from typing import get_args

import numpy as np
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.types import FloatArray
from hyq.experts.lock import LockData
from hyq.report.figures import DASHES, FEWEST_FOR_BAND, Panel
from hyq.report.html import Section, note, publish
from hyq.report.lines import (
    FEWEST_FOR_INTERVAL,
    LOCK_RETURN,
    RETURN,
    SUCCESS,
    Line,
    Measure,
    Place,
    group_runs,
    has_values,
    interval_of,
    line_panel,
    listed,
)
from hyq.report.records import RunResult, SuiteRecords, algorithm_color, grouped, is_offline
from hyq.report.stats import interquartile_mean
from hyq.report.tables import TextTable, number

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
        return cls(records, tuple(suite_lines(records.runs)))

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
        also = [_reached(line) for line in rest if line.steps_to_solve.solved]
        return _reached(first, " solved"), ", ".join(also)
    best = max(lines, key=lambda line: line.mean)
    return f"no run solved it, and {best.label} has the highest return, {number(best.mean)}", ""


def _reached(line: Line, said: str = "") -> str:
    """Say how many runs solved the problem, and after how many steps."""
    solve = line.steps_to_solve
    after = "" if is_offline(line.algorithm) else f", after {solve} online steps (median)"
    return f"{line.label}{said} {solve.solved} of {solve.runs}{after}"


def suite_lines(runs: Sequence[RunResult]) -> list[Line]:
    """Group runs into lines, compared by the success rate where all of them have it."""
    if runs[0].on_lock:
        return group_runs(_lock_places(runs), LOCK_RETURN)
    begun = [run for run in runs if run.rows]
    succeed = begun and all(has_values([run], SUCCESS) for run in begun)
    return group_runs(_deep_places(runs), SUCCESS if succeed else RETURN)


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


def suite_panels(result: SuiteResult) -> list[Panel]:
    """Draw a panel a setting: the main lines as in the paper's figure, and the others hidden."""
    measure = result.measure
    looks = zip(cycle(ABLATION_COLORS), cycle(DASHES[1:]), strict=False)
    ablations = dict.fromkeys(line.label for line in result.lines if not line.is_main)
    look_of = dict(zip(ablations, looks, strict=False))
    labels = {
        "x_label": "online steps, roll-ins included" if measure is LOCK_RETURN else "online steps",
        "y_label": measure.label,
        "y_range": measure.range if measure is SUCCESS else None,
        "log_x": measure.log_x,
        "note": "bar at the end: 95% interval of the mean" if measure is SUCCESS else "",
    }
    panels = []
    for name, lines in grouped(result.lines, lambda line: line.panel).items():
        drawn = []
        for line in lines:
            color, dashes = look_of.get(line.label, (algorithm_color(line.algorithm), ""))
            look = {"color": color} | ({"dashes": dashes} if dashes else {})
            drawn.append(line.drawn(**look))
        runs = [run for line in lines for run in line.runs]
        panels.append(line_panel(panel_title(name), drawn, runs, **labels))
    return panels


def suite_table(result: SuiteResult) -> TextTable:
    """Lay out one row an algorithm and setting."""
    columns = SUCCESS_COLUMNS if result.measure is SUCCESS else COLUMNS
    rows = [_cells(line) for line in result.finished]
    return TextTable(columns, rows, result.records.manifest["title"], left=2)


def _cells(line: Line) -> tuple[str, ...]:
    shown = "{:.3f}".format if line.measure.range else number
    solve, bounds = line.steps_to_solve, line.interval
    interval = "-" if bounds is None else " to ".join(map(shown, bounds))
    name, score = (line.panel, line.label), (shown(line.mean), interval)
    seconds = f"{np.median([summary['wall_seconds'] for summary in line.finished]):,.0f}"
    if line.measure is SUCCESS:
        returns = np.array([summary["eval_return"] for summary in line.finished])
        return *name, str(solve.runs), *score, number(interquartile_mean(returns)), seconds
    steps = "-" if is_offline(line.algorithm) else str(solve)
    return *name, f"{solve.solved}/{solve.runs}", steps, *score, seconds


def overall_table(result: SuiteResult) -> TextTable | None:
    """Sum every algorithm up over the tasks, where their scores are on one scale."""
    if result.measure is not SUCCESS:
        return None
    rows = []
    for name, lines in grouped(result.finished, lambda line: line.label).items():
        scores = np.concatenate([line.scores for line in lines])
        low, high = interval_of([line.scores for line in lines])
        lowest = min(lines, key=lambda line: line.mean)
        middle = f"{interquartile_mean(scores):.3f}", f"{low:.3f} to {high:.3f}"
        ends = f"{scores.mean():.3f}", f"{lowest.mean:.3f} ({lowest.panel})"
        rows.append((name, str(len(lines)), str(len(scores)), *middle, *ends))
    return TextTable(OVERALL_COLUMNS, rows, "Over the tasks")


def report_suite(path: Path, console: Console) -> None:
    """Write the figure and the page, and print the table."""
    result = SuiteResult.read(path)
    overall, panels = overall_table(result), suite_panels(result)
    peak = any(line.label.endswith("(peak)") for line in result.finished)
    said = note("suite_table" if overall is None else "success_table", fewest=FEWEST_FOR_INTERVAL)
    said += f" {note('peak')}" * peak
    sections = [Section("Every run", parts=[_every_run(line) for line in result.lines])]
    if overall is not None:
        console.print(overall.rich())
        sections.insert(0, Section("Over the tasks", table=overall, note=note("overall")))
    publish(
        result.records,
        panels,
        suite_table(result),
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
