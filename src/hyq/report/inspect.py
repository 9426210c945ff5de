"""What an inspection of data shows: the verdict first, then a figure, then tables; and its page."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.text import Text

from hyq.core.errors import printable
from hyq.coverage.episodes import EpisodesInspection
from hyq.coverage.episodes import facts as episode_facts
from hyq.coverage.inspection import Inspection, facts
from hyq.report.curves import GREY, Curve, Level, Panel, draw_curves, figure_bytes, panel_grid, tidy
from hyq.report.html import image, write_page
from hyq.report.tables import TextTable, facts_table, number

SEVERITY_COLORS = {"good": "green", "note": "cyan", "warning": "yellow", "error": "red"}
BLUE = "#1f6f8b"
STEPS_SHOWN = 12
LONGEST_NAME = 24


def print_inspection(found: Inspection | EpisodesInspection, console: Console) -> None:
    """Print the verdict first, then what it rests on."""
    for line in found.verdict:
        console.print(f"> {line}")
    for finding in found.findings:
        severity = f"{finding.severity:>8} ", SEVERITY_COLORS[finding.severity]
        console.print(Text.assemble(severity, printable(finding.text)))
    if isinstance(found, EpisodesInspection):
        console.print(episodes_table(found).rich())
        return
    console.print(facts_table(facts(found), str(found.path)))
    shown = np.unique(np.linspace(0, len(found.steps) - 1, STEPS_SHOWN).astype(int))
    console.print(step_table(found, shown.tolist()).rich())


COLUMNS = {
    "rows": "rows",
    "mean_reward": "reward",
    "terminated": "ended",
    "action_entropy": "entropy",
    "distinct": "distinct",
    "dimension": "dim.",
    "escaping": "escaping",
    "unsupported": "no supp.",
    "condition": "cond.",
}


def step_table(found: Inspection, steps: Iterable[int]) -> TextTable:
    """Lay out what holds at each step."""
    rows = [[str(h), *(number(getattr(found.steps[h], name)) for name in COLUMNS)] for h in steps]
    return TextTable(("step", *COLUMNS.values()), rows, left=0)


def write_inspection(found: Inspection, path: Path) -> None:
    """Write the page of transitions by step."""
    provenance = {f"provenance: {name}": str(value) for name, value in found.provenance.items()}
    alt = "Rows, rewards, actions and coverage at every step"
    write_page(
        path,
        "inspect.html",
        title=f"Inspection of {found.path.name}",
        conclusion=found.verdict,
        findings=found.findings,
        figure=image(figure_bytes(draw_inspection(found)), alt, kind="wide"),
        dataset={**facts(found), **provenance},
        steps=step_table(found, range(len(found.steps))),
    )


def draw_inspection(found: Inspection) -> Figure:
    """Draw rewards, actions and coverage against the step, and the returns."""
    steps = list(range(len(found.steps)))
    titles = {
        "rows": "transitions",
        "mean_reward": "mean reward",
        "action_entropy": "action entropy (nats)",
        "dimension": "effective dimension of observations",
    }
    if found.comparator is not None:
        titles["unsupported"] = "policy's visits without support"
    panels = []
    for name, title in titles.items():
        values = [float(getattr(step, name)) for step in found.steps]
        curve = Curve("", steps, values, color=BLUE, width=1.6, marker="o", seeds=0)
        panels.append(Panel(title, [curve], [Level(0.0, style="")], x_label="step"))
    if found.episodes.linked > 0.9 and len(found.episodes.returns):
        count, edges = np.histogram(found.episodes.returns, bins=30)
        bars = Curve("", np.repeat(edges, 2)[1:-1], np.repeat(count, 2), color=BLUE, seeds=0)
        left, right = float(edges[0]), float(edges[-1])
        panels.append(Panel("episodes by return", [bars], (), "return", x_range=(left, right)))
    return draw_curves(panels, columns=3, size=(3.7, 2.8), share_y=False)


def episodes_table(found: EpisodesInspection) -> TextTable:
    """Lay out what holds for each dataset, a column each."""
    names = [one.name for one in found.coverage]
    columns = [episode_facts(name, found) for name in names]
    shown = columns[0] | columns[-1]
    rows = [[fact, *(column.get(fact, "-") for column in columns)] for fact in shown]
    return TextTable(("", *names), rows, left=len(names) + 1)


def write_episodes(found: EpisodesInspection, path: Path) -> None:
    """Write the page of whole episodes."""
    policy = "of the policy behind the best tenth of all the episodes (and those as good as them)"
    if found.best.policy is not None:
        policy = f"of the policy {found.best.policy}"
    alt = "Returns of the episodes" + (", and C_pi" if found.known else "")
    write_page(
        path,
        "inspect.html",
        title="Inspection of " + ", ".join(one.name for one in found.coverage),
        conclusion=found.verdict,
        findings=found.findings,
        figure=image(figure_bytes(draw_episodes(found)), alt, kind="wide"),
        datasets=episodes_table(found),
        policy=policy,
    )


def draw_episodes(found: EpisodesInspection) -> Figure:
    """Draw the returns of each dataset's episodes, and C_pi with its interval where it is known."""
    names = [one.name for one in found.coverage]
    count = 2 if found.known else 1
    figure, (returns, *transfer) = panel_grid(count, 2, (11 / count, 1.6 + 0.8 * len(names)))
    places = np.arange(len(names))[::-1]
    rng = np.random.default_rng(0)  # episodes of equal return are spread a little
    for place, name in zip(places, names, strict=True):
        values = found.cells[name].returns
        height = place + rng.uniform(-0.22, 0.22, len(values))
        returns.plot(values, height, "o", color=BLUE, alpha=0.35, markersize=4, linewidth=0)
    returns.set_title("return of each episode", loc="left", fontsize=10)
    for axes in transfer:
        for index, one in enumerate(found.known):  # they come before the others
            value, place = one.transfer, places[index]
            axes.plot([value.low, value.high], [place, place], color=BLUE, linewidth=2)
            axes.plot(value.value, place, "o", color=BLUE, markersize=7)
        axes.axvline(1.0, color=GREY, linestyle=":", linewidth=1.3)
        of = (
            "the best episodes; 1 is their" if found.best.policy is None else "the policy; 1 is its"
        )
        axes.set_title(f"C_pi of {of} own data", loc="left", fontsize=10)
        axes.set_xlim(left=min([0.9, *(one.transfer.low for one in found.known)]))
    for axes in (returns, *transfer):
        # Directories differ at their ends.
        ends = [n if len(n) <= LONGEST_NAME else f"...{n[3 - LONGEST_NAME :]}" for n in names]
        axes.set_yticks(places, ends)
        axes.set_ylim(-0.6, len(names) - 0.4)
        tidy(axes)
    return figure
