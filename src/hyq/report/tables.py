"""Tables of text, shown in a terminal and on pages alike; the table that compares runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE
from rich.console import JustifyMethod
from rich.table import Table

from hyq.report.records import RunResult


@dataclass(frozen=True)
class TextTable:
    """Rows of text below a header."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: int = 1
    """Number of columns that are text, and so aligned to the left."""

    def rich(self) -> Table:
        """Lay it out for a terminal."""
        table = Table(
            title=self.title or None, title_justify="left", box=None, padding=(0, 0, 0, 1)
        )
        for index, name in enumerate(self.columns):
            text = index < self.left  # text may be folded, numbers never
            justify: JustifyMethod = "left" if text else "right"
            table.add_column(name, justify=justify, no_wrap=not text, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def facts_table(facts: Mapping[str, str], title: str = "") -> Table:
    """Lay out names and values for a terminal, without a header."""
    table = Table(title=title, title_justify="left", show_header=False, box=SIMPLE)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def number(value: float | None, digits: int = 3) -> str:
    """Show a number in a few characters, or that there is none."""
    if value is None or math.isnan(value):
        return "-"
    whole = isinstance(value, int) or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:.{digits}g}"


def run_table(runs: Sequence[RunResult]) -> TextTable:
    """Compare runs, a row each; what all of them share is left out or named in the title."""
    environments = sorted({run.environment for run in runs})
    several = len(environments) > 1
    counted = [run.summary for run in runs if run.summary and "offline_samples" in run.summary]
    columns = ["algorithm", *(["environment"] if several else []), "data"]
    numbers = ["seed", "solved at", "return", "best", "steps", *(["offline"] if counted else [])]
    rows = []
    for run in runs:
        where = [run.environment] if several else []
        cells = [str(run.setting("algorithm")), *where, _data(run), str(run.setting("seed"))]
        if (summary := run.summary) is None:
            cells += ["not yet"] + ["-"] * len(numbers[1:])
        else:
            cells += [
                _solved_at(summary),
                number(summary["eval_return"]),
                number(summary.get("peak_return")),
                f"{summary['online_steps']:,}",
                *([number(summary.get("offline_samples"))] if counted else []),
                f"{summary['wall_seconds']:,.0f}",
            ]
        rows.append(cells)
    title = "Runs" if several else environments[0]
    return TextTable([*columns, *numbers, "sec"], rows, title, left=len(columns))


def _data(run: RunResult) -> str:
    data = str(run.setting("data") or "-")
    anti_reward = run.setting("anti_reward_probability", 0.5)
    return data if anti_reward == 0.5 else f"{data}, anti-reward {anti_reward:g}"


def _solved_at(summary: Mapping[str, Any]) -> str:
    if not summary["solved"]:
        return "no"
    steps = summary.get("solved_at")
    return f"{summary['online_steps'] if steps is None else steps:,}"
