"""What `hyq data check` shows, in a terminal and on a page: sentences, figures, the theory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from hyq.core.errors import printable
from hyq.core.types import Array
from hyq.coverage.check import Check, facts, theory
from hyq.report.figures import GREY, Curve, Panel
from hyq.report.html import Section, note, write_page
from hyq.report.tables import TextTable, facts_table

SEVERITY_COLORS = {"good": "green", "note": "cyan", "warning": "yellow", "error": "red"}
BLUE, ORANGE, MORE = "#1f6f8b", "#d98326", ("#6a994e", "#7b2cbf", "#9a031e", "#0a9396")
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
    several = len(checks) > 1
    sections = [
        Section(
            check.name if several else "",
            lead=check.verdict if several else (),
            findings=check.findings,
            panels=check_panels(check),
            table=ranges_table(check),
            facts=facts(check)
            | {
                f"provenance: {name}": str(value)
                for name, value in check.dataset.provenance.items()
                if not name.endswith("_space")
            },
            parts=[Section("The theory", facts=numbers, note=note("check"), folded=True)]
            if (numbers := theory(check))
            else [],
        )
        for check in checks
    ]
    title = "Check of " + ", ".join(check.name for check in checks)
    write_page(path, title, [order(checks)] if several else checks[0].verdict, sections)


def check_panels(check: Check) -> list[Panel]:
    """Draw what the dataset holds: returns, lengths, actions, and what is covered over time."""
    panels = []
    if len(check.cells.returns):
        panels.append(_returns(check))
    if check.dataset.ordered:
        length, ended = check.dataset.length, check.dataset.terminated
        parts = {"terminated": length[ended], "truncated": length[~ended]}
        panels.append(_histogram("lengths of the episodes", "steps", parts))
    return [*panels, _actions(check), _over_time(check)]


def _histogram(title: str, x_label: str, parts: dict[str, Array]) -> Panel:
    """Draw how often values come, each part in front of all those before it."""
    values = np.concatenate([*parts.values()]).astype(float)
    bins = min(30, max(len(np.unique(values)), 2))
    edges = np.histogram_bin_edges(values, bins)
    counts = np.cumsum([np.histogram(part, edges)[0] for part in parts.values()], axis=0)
    x = np.repeat(edges, 2)
    curves = [
        Curve(name, x, [0.0, *np.repeat(count, 2), 0.0], color=color, kind="area")
        for name, count, color in zip(parts, counts, (BLUE, ORANGE), strict=False)
    ]
    return Panel(title, curves[::-1], x_label, "episodes", (edges[0], edges[-1]))


def _returns(check: Check) -> Panel:
    panel = _histogram("returns of the episodes", "return", {"": check.cells.returns})
    if check.best is None:
        return panel
    mean, whose = check.best.mean_return, "the policy" if check.policy else "the best"
    (histogram,) = panel.curves
    mark = Curve(f"mean of {whose}", [mean, mean], [0.0, max(histogram.y)], color=ORANGE)
    left, right = min(panel.x_range or (mean,)), max(panel.x_range or (mean,))
    x_range = min(left, mean), max(right, mean)
    return Panel(panel.title, [histogram, mark], "return", "episodes", x_range)


def ranges_table(check: Check) -> TextTable | None:
    """List where each number of an observation lies, beside what the environment shows."""
    if not check.ranges:
        return None
    rows = []
    for name, mine in list(check.ranges.items())[:MOST_BARS]:
        theirs = check.bounds.get(name)
        rows.append(
            (
                name,
                *(
                    "-" if one is None else f"{one[0]:.3g} to {one[1]:.3g}"
                    for one in (mine, theirs)
                ),
            )
        )
    left_out = len(check.ranges) - len(rows)
    more = f" ({left_out} more are not shown)" if left_out else ""
    return TextTable((f"observation{more}", "in the data", "in the environment"), rows)


def _actions(check: Check) -> Panel:
    """Count actions; of vectors, draw how each of the first numbers is spread."""
    actions, counts = check.taken
    if len(actions):
        places = np.repeat(np.arange(len(actions[:MOST_BARS]) + 1) - 0.5, 2)
        heights = [0.0, *np.repeat(counts[:MOST_BARS], 2), 0.0]
        named = "action, in order" if actions[-1] != len(actions) - 1 else "action"
        curve = Curve("", places, heights, color=BLUE, kind="area")
        return Panel("actions", [curve], named, "transitions", (places[0], places[-1]))
    rows = check.dataset.action.reshape(len(check.dataset), -1)
    curves = []
    for number, color in zip(range(rows.shape[1]), (BLUE, ORANGE, *MORE), strict=False):
        count, edges = np.histogram(rows[:, number], bins=40)
        middles = (edges[1:] + edges[:-1]) / 2
        curves.append(Curve(f"action[{number}]", middles, count, color=color))
    low, high = float(rows.min()), float(rows.max())
    return Panel("actions", curves, "value", "transitions", (low, high))


def _over_time(check: Check) -> Panel:
    """Draw the share of visits that other data has; without those, how many rows each step has."""
    coverage = check.coverage
    known = coverage is not None and len(coverage.over_time) > 0
    values = (
        coverage.over_time
        if coverage is not None and known
        else np.bincount(check.cells.visits.time)
    )
    parts = np.array_split(values.astype(float), min(TIMES, len(values)))
    starts = np.cumsum([0, *map(len, parts)])[:-1]
    whose = "the policy's" if check.policy else "the best episodes'"
    title = f"share of {whose} steps in other data" if known else "transitions by step"
    curve = Curve("", starts, [float(part.mean()) for part in parts], color=BLUE if known else GREY)
    y_range = (0.0, 1.0) if known else None
    return Panel(title, [curve], "step of the episode", y_range=y_range)
