"""What a person reads after an inspection of whole episodes: a verdict, facts, one HTML page."""

import base64
import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from hyq.core.files import write_bytes
from hyq.coverage.cells import (
    Best,
    CellCoverage,
    CellData,
    Comparison,
    Grid,
    cell_coverage,
    ranked,
)
from hyq.coverage.estimate import Interval
from hyq.coverage.verdict import THIN, WELL
from hyq.data.columns import described
from hyq.data.dataset import Dataset

BLUE, GREY = "#1f6f8b", "#888888"
LONGEST_NAME = 24
MOST_DIGITS = 6


@dataclass(frozen=True)
class EpisodesInspection:
    """What was found in some datasets of whole episodes."""

    logs: dict[str, Dataset]
    cells: dict[str, CellData]
    best: Best
    coverage: list[CellCoverage]
    """The easiest dataset first."""
    comparisons: list[Comparison]
    meets_itself: bool = True
    """Whether a policy's own episodes would cover it: otherwise cells are too fine to tell."""

    @property
    def known(self) -> list[CellCoverage]:
        """Datasets whose coverage can be told, the easiest first."""
        return [one for one in self.coverage if one.known and self.meets_itself]

    @classmethod
    def of(
        cls,
        logs: dict[str, Dataset],
        progress: Callable[[int], None] = lambda rows: None,
        played: tuple[str, Dataset] | None = None,
    ) -> "EpisodesInspection":
        """Read the datasets once each, and hold them against the best of all their episodes.

        Or against those that a policy, by its name, has `played`.
        """
        shared = Grid.of(list(logs.values()))
        cells = {name: CellData.of(name, one, shared, progress) for name, one in logs.items()}
        if played is None:
            best, meets_itself = Best.of(list(cells.values())), True
        else:
            own = CellData.played(*played, shared)
            best = Best.played(own, list(cells.values()))
            meets_itself = cell_coverage(own, best).known
        order, steps = ranked([cell_coverage(one, best) for one in cells.values()])
        return cls(logs, cells, best, order, steps, meets_itself)


def verdict(found: EpisodesInspection) -> list[str]:
    """Say what Hy-Q can compete with given each dataset, and which of them is better."""
    best = found.best
    whose = "of all" if len(found.logs) > 1 else "of the"
    who = f"The {len(best.visits)} best {whose} {best.pooled} different episodes earn"
    if best.policy is not None:
        who = f"In {len(best.visits)} episodes of its own the policy {best.policy} earns"
    which = "each dataset" if len(found.logs) > 1 else "the dataset"
    lines = [f"{who} {best.mean_return:,.4g} on average: {which} is compared with these."]
    lines += [f"{one.name}: {_judgement(one, found)}" for one in found.coverage]
    lines += [warning for name in found.logs for warning in _warnings(name, found.logs[name])]
    if len(found.known) > 1:
        lines.append("Easiest first: " + ", then ".join(one.name for one in found.coverage) + ".")
        lines += [
            f"{right.name} has a smaller C_pi, but {_drawback(right, left)}."
            for left, right in pairwise(found.known)
            if right.transfer.value < left.transfer.value
        ]
    for step in found.comparisons if found.known else ():
        doubt = "; the episodes are too few to be sure" if step.is_tie else ""
        factor, low, high = _told_apart(step.factor, 2)
        lines.append(
            f"For {step.worse} it asks for {factor} times the samples of {step.better} "
            f"({low} to {high}{doubt})."
        )
    return lines


def _drawback(one: CellCoverage, other: CellCoverage) -> str:
    """Say what puts a dataset behind another one in spite of its C."""
    if not one.covered:
        return f"it leaves out {one.unseen:.0%} of the visits"
    return (
        f"{one.untried:.0%} of what could be done at these visits was never tried in it, and "
        f"{other.untried:.0%} in {other.name}: what is worse there, online steps must find out"
    )


def _told_apart(value: Interval, digits: int) -> list[str]:
    """Show a value and its bounds with so many digits, or more where the bounds look the same."""
    numbers = (value.value, value.low, value.high)
    shown = [f"{number:.{digits}g}" for number in numbers]
    if shown[1] == shown[2] and digits < MOST_DIGITS and value.low < value.high:
        return _told_apart(value, digits + 1)
    return shown


def _judgement(one: CellCoverage, found: EpisodesInspection) -> str:
    """Say how one dataset covers the best episodes or the policy, as far as it tells."""
    if math.isnan(one.unseen):
        return "UNKNOWN. There are too few good episodes to hold it against."
    missing = f"{one.unseen:.0%} of a best episode's visits are in no other data"
    like, whose = "the best", "their"
    if found.best.policy is not None:
        missing = f"{one.unseen:.0%} of the policy's visits are not in the data"
        like, whose = "its own", "its"
    remedy = f"Log more episodes like {like}, or expect the online steps to do the exploring"
    if not found.meets_itself:
        return "UNKNOWN. Even the policy's own episodes hardly meet one another: play more of them."
    if not one.known and found.best.policy is not None:
        return f"NOT COVERED. {missing}: nothing is promised there. {remedy}."
    if not one.known:
        return f"UNKNOWN. The best episodes hardly meet: {missing}. {remedy}."
    value = one.transfer
    estimate = "about {} ({} to {})".format(*_told_apart(value, 3))
    if not one.covered:
        return (
            f"COVERED IN PART. {missing}: nothing is promised there, and C_pi, which is {estimate} "
            f"for the rest, leaves them out. {remedy}."
        )
    grade = "WELL COVERED" if value.value <= WELL else "COVERED, THINLY"
    grade = grade if value.value <= THIN else "HARDLY COVERED"
    return (
        f"{grade}. C_pi is {estimate}; {whose} own data would have 1, so the bound asks for about "
        f"{value.value**2:.2g} times the samples of such data."
    )


LIMIT_SHARE = 0.1
"""Share of episodes that end after the very same number of steps by a limit, hardly by chance."""


def _warnings(name: str, logs: Dataset) -> list[str]:
    """Say what may have gone wrong when the data was logged."""
    said = []
    longest = int(logs.length.max())
    at_limit = logs.terminated & (logs.length == longest)
    share = float(at_limit.mean())
    if at_limit.sum() > 1 and share > LIMIT_SHARE and len(np.unique(logs.length)) > 1:
        said.append(
            f"{name}: {share:.0%} of the episodes are marked as terminated after exactly "
            f"{longest:,} steps. If that is a time limit they were cut off, and their value goes "
            "on: log them as truncated."
        )
    return said


def facts(name: str, found: EpisodesInspection) -> dict[str, str]:
    """Return what holds for one dataset, as text."""
    logs, cells = found.logs[name], found.cells[name]
    coverage = next(one for one in found.coverage if one.name == name)
    low, middle, high = np.quantile(cells.returns, [0, 0.5, 1])
    shares = np.unique(logs.action, axis=0, return_counts=True)[1] / len(logs)
    entropy = -sum(p * np.log2(p) for p in shares)
    places = np.concatenate(cells.places)
    shown = {
        "transitions": f"{len(logs):,} in {len(logs.length):,} episodes",
        "observations": described(logs.observation),
        "actions": f"{len(shares):,} different, {entropy:.2f} bits",
        "episode returns": f"{low:,.4g} to {high:,.4g}, median {middle:,.4g}, "
        f"mean {cells.returns.mean():,.4g}",
        "episode lengths": f"{logs.length.min():,} to {logs.length.max():,}, "
        f"mean {logs.length.mean():,.0f}",
        "ended by themselves": f"{logs.terminated.mean():.0%} of the episodes",
        "without reward": f"{(logs.reward == 0).mean():.2%} of the transitions",
        "cells of observations": f"{len(np.unique(places)):,}, "
        f"{np.unique(places, return_counts=True)[1].max() / len(places):.1%} in the fullest",
        "copies of other episodes": f"{1 - len(set(cells.keys)) / len(cells.keys):.1%} of them",
    }
    if found.best.policy is None:
        shown["in the best episodes"] = f"{coverage.share:.1%} of the transitions"
    if coverage.known and found.meets_itself:
        shown["C_pi"] = "{}, 95% {} to {}".format(*_told_apart(coverage.transfer, 3))
    if found.best.policy is not None:
        shown["not in the data"] = (
            f"{coverage.unseen:.1%} of the policy's visits, later ones counting less"
        )
    elif not math.isnan(coverage.unseen):
        shown["never seen elsewhere"] = (
            f"{coverage.unseen:.1%} of a best episode's visits, later ones counting less"
        )
    if not math.isnan(coverage.untried):
        shown["never tried there"] = f"{coverage.untried:.0%} of all actions at these visits"
    return shown


def print_episodes(found: EpisodesInspection, console: Console) -> None:
    """Print the verdict first, then what it rests on."""
    for line in verdict(found):
        console.print(f"[bold]>[/] {line}", highlight=False)
    names = [one.name for one in found.coverage]
    table = Table("", *names, box=SIMPLE, padding=(0, 0, 0, 1))
    columns = [facts(name, found) for name in names]
    for fact in columns[0] | columns[-1]:
        table.add_row(fact, *(column.get(fact, "-") for column in columns))
    console.print(table)


def write_episodes_page(found: EpisodesInspection, path: Path, style: str) -> None:
    """Write the report as one file that needs no network."""
    names = [one.name for one in found.coverage]
    columns = [facts(name, found) for name in names]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *names))
    rows = "".join(
        f"<tr><th>{html.escape(fact)}</th>"
        + "".join(f"<td>{html.escape(column.get(fact, '-'))}</td>" for column in columns)
        + "</tr>"
        for fact in columns[0] | columns[-1]
    )
    said = "".join(f"<p>{html.escape(line)}</p>" for line in verdict(found))
    title = html.escape("Inspection of " + ", ".join(names))
    picture = base64.b64encode(draw_episodes(found)).decode()
    pictured = "Returns of the episodes" + (", and C_pi" if found.known else "")
    write_bytes(
        path,
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>{style}</style></head><body>
<h1>{title}</h1>
<section class="verdict">{said}</section>
<img alt="{pictured}" src="data:image/png;base64,{picture}">
<table class="facts"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
<p class="small">C_pi: {_whose(found.best)}, over cells of observations that look alike, together
with the action; docs/theory.md says how. What is visited and not in the data, C_pi leaves out.</p>
</body></html>
""".encode(),
    )


def _whose(best: Best) -> str:
    if best.policy is not None:
        return html.escape(f"of the policy {best.policy}")
    return "of the policy behind the best tenth of all the episodes (and those as good as them)"


def draw_episodes(found: EpisodesInspection) -> bytes:
    """Draw the returns of each dataset's episodes, and how it covers the best; return a PNG.

    Coverage is left out where nothing is known about it.
    """
    names = [one.name for one in found.coverage]
    figure = Figure(figsize=(11, 1.6 + 0.8 * len(names)), layout="constrained")
    returns, *transfer = figure.subplots(1, 2 if found.known else 1, squeeze=False)[0]
    places = np.arange(len(names))[::-1]
    rng = np.random.default_rng(0)  # episodes of equal return are spread a little
    for place, name in zip(places, names, strict=True):
        earned = found.cells[name].returns
        height = place + rng.uniform(-0.22, 0.22, len(earned))
        returns.plot(earned, height, "o", color=BLUE, alpha=0.35, markersize=4, linewidth=0)
    returns.set_title("return of each episode", loc="left", fontsize=10)
    for axes in transfer:
        _draw_transfer(found, axes)
    for axes in (returns, *transfer):
        axes.set_yticks(places, [_end(name) for name in names])
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw_transfer(found: EpisodesInspection, axes: Axes) -> None:
    """Draw C_pi with its interval, the easiest dataset at the top."""
    for number, one in enumerate(found.known, start=1):  # they come before the others
        value, place = one.transfer, len(found.coverage) - number
        axes.plot([value.low, value.high], [place, place], color=BLUE, linewidth=2)
        axes.plot(value.value, place, "o", color=BLUE, markersize=7)
    axes.axvline(1.0, color=GREY, linestyle=":", linewidth=1.3)
    whose = "the best episodes; 1 is their" if found.best.policy is None else "the policy; 1 is its"
    axes.set_title(f"C_pi of {whose} own data", loc="left", fontsize=10)
    axes.set_xlim(left=min([0.9, *(one.transfer.low for one in found.known)]))


def _end(name: str) -> str:
    """Return the end of a long name, where directories differ."""
    return name if len(name) <= LONGEST_NAME else f"...{name[3 - LONGEST_NAME :]}"
