"""What `hyq data check` shows, in a terminal and on a page: sentences, figures, the theory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from hyq.core.errors import printable
from hyq.core.types import Array
from hyq.coverage.check import Check, facts, theory
from hyq.report.curves import GREY, figure_bytes, panel_grid, tidy
from hyq.report.html import image, write_page
from hyq.report.tables import facts_table

SEVERITY_COLORS = {"good": "green", "note": "cyan", "warning": "yellow", "error": "red"}
BLUE, ORANGE = "#1f6f8b", "#d98326"
MOST_BARS, TIMES = 24, 60


def print_checks(checks: Sequence[Check], console: Console) -> None:
    """Print what can be learned first, then what is wrong, and the theory last."""
    if len(checks) > 1:
        console.print(f"> {order(checks)}")
    for check in checks:
        for line in check.verdict:
            console.print(f"> {line}", soft_wrap=True)
        for finding in check.findings:
            severity = f"{finding.severity:>8} ", SEVERITY_COLORS[finding.severity]
            console.print(Text.assemble(severity, printable(finding.text)))
        console.print(facts_table(facts(check), check.name))
        if numbers := theory(check):
            console.print(facts_table(numbers, "the theory (docs/theory.md)"))


def order(checks: Sequence[Check]) -> str:
    """Name datasets, the easiest to learn from first."""
    if not all(check.known for check in checks):
        return "Which of the datasets is easiest to learn from is not known."
    return "Easiest to learn from first: " + ", then ".join(one.name for one in checks) + "."


def write_checks(checks: Sequence[Check], path: Path) -> None:
    """Write the page, with everything it needs inside of it."""
    parts = [
        {
            "name": check.name,
            "verdict": check.verdict if len(checks) > 1 else [],
            "findings": check.findings,
            "figure": image(
                figure_bytes(draw_check(check)),
                "Returns, lengths, ranges of the observations, actions, coverage over time",
                kind="wide",
            ),
            "facts": facts(check)
            | {
                f"provenance: {name}": str(value)
                for name, value in check.dataset.provenance.items()
                if not name.endswith("_space")
            },
            "theory": theory(check),
        }
        for check in checks
    ]
    write_page(
        path,
        "check.html",
        title="Check of " + ", ".join(check.name for check in checks),
        conclusion=checks[0].verdict if len(checks) == 1 else [order(checks)],
        parts=parts,
    )


def draw_check(check: Check) -> Figure:
    """Draw what the dataset holds, beside what the environment shows."""
    drawn = [_actions, _over_time]
    if check.ranges:
        drawn.insert(0, _ranges)
    if len(check.cells.returns):
        drawn.insert(0, _returns)
    if check.dataset.ordered:
        drawn.insert(1, _lengths)
    rows = min(max(len(check.ranges), 8), MOST_BARS)
    height = 2.6 if rows <= 8 else 0.25 * rows + 0.6
    figure, grid = panel_grid(len(drawn), 3, (3.9, height))
    for axes, draw in zip(grid, drawn, strict=True):
        draw(axes, check)
        axes.title.set(fontsize=10, ha="left", x=0.0)
        tidy(axes)
    return figure


def _histogram(axes: Axes, values: Array, title: str) -> None:
    axes.hist(values, bins=min(30, max(len(np.unique(values)), 2)), color=BLUE)
    axes.set(title=title, ylabel="episodes")


def _returns(axes: Axes, check: Check) -> None:
    _histogram(axes, check.cells.returns, "returns of the episodes")
    if check.best is not None:
        mean, whose = check.best.mean_return, "the policy" if check.policy else "the best"
        axes.axvline(mean, color=ORANGE, label=f"mean of {whose}")
        axes.legend(fontsize=7.5, edgecolor="none")


def _lengths(axes: Axes, check: Check) -> None:
    """Stack the episodes that ended on those that were cut off."""
    length, ended = check.dataset.length, check.dataset.terminated
    bins = np.linspace(length.min() - 0.5, length.max() + 0.5, 31)
    parts, names = [length[ended], length[~ended]], ["terminated", "truncated"]
    axes.hist(parts, bins=bins.tolist(), stacked=True, color=[BLUE, ORANGE], label=names)
    axes.set(title="lengths of the episodes", ylabel="episodes")
    axes.legend(fontsize=7.5, edgecolor="none")


def _ranges(axes: Axes, check: Check) -> None:
    """Draw where each number of an observation lies, on a scale of its own."""
    shown = list(check.ranges)[:MOST_BARS]
    for row, name in enumerate(shown):
        mine, theirs = check.ranges[name], check.bounds.get(name)
        both = [*mine, *(theirs or ())]
        width = (max(both) - min(both)) or 1.0
        for pair, color, shift in ((mine, BLUE, 0.14), (theirs, GREY, -0.14)):
            if pair is not None:
                low, high = ((value - min(both)) / width for value in pair)
                axes.plot([low, high], [-row + shift] * 2, color=color, linewidth=4, marker="|")
        axes.text(1.03, -row, f"{mine[0]:.3g} to {mine[1]:.3g}", fontsize=7, va="center")
    axes.set_yticks(-np.arange(len(shown)), [name.replace("observation", "") for name in shown])
    beside = "; grey: the environment" if check.bounds else ""
    axes.set(title=f"ranges of observations{beside}", xticks=[], xlim=(-0.03, 1.4))
    axes.set_ylim(-max(len(shown), 6) + 0.5, 0.6)
    axes.tick_params(labelsize=7)


def _actions(axes: Axes, check: Check) -> None:
    """Count actions; of vectors, draw how each of the first numbers is spread."""
    actions, counts = check.taken
    if len(actions):
        axes.bar(actions[:MOST_BARS].astype(str), counts[:MOST_BARS], color=BLUE)
        axes.set(title="actions", ylabel="transitions")
        return
    rows = check.dataset.action.reshape(len(check.dataset), -1)
    for number in range(min(rows.shape[1], 6)):
        count, edges = np.histogram(rows[:, number], bins=40)
        axes.stairs(count, edges, label=f"action[{number}]")
    axes.set(title="actions", ylabel="transitions")
    axes.legend(fontsize=7, edgecolor="none")


def _over_time(axes: Axes, check: Check) -> None:
    """Draw the share of visits that other data has; without those, how many rows each step has."""
    coverage = check.coverage
    known = coverage is not None and len(coverage.over_time)
    values = (
        coverage.over_time
        if coverage is not None and known
        else np.bincount(check.cells.visits.time)
    )
    parts = np.array_split(values.astype(float), min(TIMES, len(values)))
    starts = np.cumsum([0, *map(len, parts)])[:-1]
    axes.plot(starts, [part.mean() for part in parts], color=BLUE, linewidth=1.8)
    whose = "the policy's" if check.policy else "the best episodes'"
    axes.set_title(f"share of {whose} steps in other data" if known else "transitions by step")
    axes.set(xlabel="step of the episode", ylim=(0, 1.05 if known else None))
