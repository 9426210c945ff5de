"""Any runs beside one another: a panel an environment, a line an algorithm, dataset and setting."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyq.report.figures import DASHES, FEWEST_FOR_BAND, Curve, Level, Panel, run_points, summed
from hyq.report.html import Section, note
from hyq.report.records import RunResult, algorithm_name, differences, grouped, in_words
from hyq.report.tables import number, run_table

COLORS = ("#1f6f8b", "#d1495b", "#e09f3e", "#6a994e", "#7b2cbf", "#0a9396", "#7f4f24", "#c51bc5")
FEWEST_EVALUATIONS = 2
MOST_NAMED = 3


@dataclass(frozen=True)
class Group:
    """Runs in one environment that differ in the seed alone."""

    name: str
    runs: tuple[RunResult, ...]
    column: str
    """What they are drawn by."""

    @property
    def last(self) -> list[float]:
        """The newest value of each run."""
        return [found[-1] for run in self.runs if (found := run.points(self.column)[1])]

    def curve(self, index: int) -> Curve:
        """Sum them up; what never acts is drawn against its updates."""
        x = "online_steps" if all(run.acts for run in self.runs) else "updates"
        points = [run_points(run, self.column, x) for run in self.runs]
        turn, color = divmod(index, len(COLORS))
        return summed(self.name, points, color=COLORS[color], dashes=DASHES[turn % len(DASHES)])


def groups_of(runs: Sequence[RunResult]) -> dict[str, list[Group]]:
    """Group runs by environment, and by what tells them apart."""
    found = {}
    for environment, here in grouped(runs, lambda run: run.environment).items():
        several = len({run.setting("data") for run in here}) > 1
        usual = column_of(here)
        groups: dict[str, list[RunResult]] = {}
        for algorithm, like in grouped(here, lambda run: str(run.setting("algorithm"))).items():
            for run, change in zip(like, differences(like), strict=True):
                name = algorithm_name(algorithm, run.setting("actions", "discrete"))
                data = str(run.setting("data") or "no data") if several else ""
                label = ", ".join(filter(None, (name, data, in_words(change))))
                groups.setdefault(label, []).append(run)
        found[environment] = [
            Group(name, tuple(like), usual if _has(like, usual) else column_of(like))
            for name, like in groups.items()
        ]
    return found


def _has(runs: Sequence[RunResult], column: str) -> bool:
    return any(run.points(column)[0] for run in runs)


def column_of(runs: Sequence[RunResult]) -> str:
    """Choose what runs are drawn by: evaluations, or training episodes where there are few."""
    evaluated = [len(run.points("eval_return", "iteration")[0]) for run in runs if run.acts]
    few = bool(evaluated) and np.median(evaluated) < FEWEST_EVALUATIONS
    return "recent_return" if few and _has(runs, "recent_return") else "eval_return"


def run_panels(runs: Sequence[RunResult]) -> list[Panel]:
    """Draw any runs: a panel an environment, a colour an algorithm, dataset and setting."""
    panels = []
    for environment, groups in groups_of(runs).items():
        here = [run for group in groups for run in group.runs]
        levels = [Level(1.0, "optimal policy")] if here[0].on_lock else []
        thresholds = {run.setting("threshold") for run in here} - {None}
        levels += [Level(value, f"solved: {value:g}") for value in sorted(thresholds)]
        acting = all(run.acts for run in here)
        x_label = "online steps" if acting else "online steps, or updates offline"
        recent = all(group.column == "recent_return" for group in groups)
        y_label = "return of training episodes" if recent else "return"
        curves = [group.curve(index) for index, group in enumerate(groups)]
        panels.append(Panel(environment, curves, levels, x_label, y_label))
    return panels


def compared(runs: Sequence[RunResult]) -> list[str]:
    """Say what has the highest return in each environment, and what is not known yet."""
    parts, few = [], False
    for environment, groups in groups_of(runs).items():
        ranked = sorted((one for one in groups if one.last), key=lambda one: -np.median(one.last))
        few = few or any(len(one.last) < FEWEST_FOR_BAND for one in ranked)
        said = "; ".join(_said(one) for one in ranked[:MOST_NAMED])
        rest = len(groups) - len(ranked[:MOST_NAMED])
        said += f"; and {rest} more" * bool(rest)
        parts.append(f"On {environment}, the newest return (median), highest first: {said}.")
    under_way = sum(run.summary is None for run in runs)
    state = f"{under_way} of them not finished" if under_way else "all finished"
    parts.append(
        f"{len(runs)} runs, {state}." if len(runs) > 1 or under_way else "1 run, finished."
    )
    if few:
        parts.append("With fewer than three seeds, another seed may give a very different return.")
    return parts


def _said(group: Group) -> str:
    seeds = f"{len(group.last)} seed{'s' * (len(group.last) > 1)}"
    return f"{group.name}: {number(float(np.median(group.last)))} ({seeds})"


def compare_sections(runs: Sequence[RunResult]) -> list[Section]:
    """Return the figure and the table of any runs."""
    drawn = Section(panels=run_panels(runs), note=note("compare"))
    return [drawn, Section("Runs", table=run_table(runs))]
