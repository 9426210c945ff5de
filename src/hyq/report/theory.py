"""The figure and the page of `hyq reproduce theory`."""

import html
import json
import math
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_bytes, write_json
from hyq.runs import lock_coverage, theory
from hyq.theory.theorem import Setting, cumulative_bound, sample_complexity

Row = dict[str, Any]
SHADES = ("#9cc5d3", "#4f9bb3", "#1f6f8b", "#0b3c4d")
COLOURS = {"tabular": "#1f6f8b", "linear": "#e09f3e", "lock": "#d1495b"}
USES = {"pooled": "#1f6f8b", "balanced": "#6a994e", "warm start": "#9a031e"}
EPSILON = 0.1
"""How near the average policy must come, for the samples of Corollary 1; values are at most one."""


def reproduce_theory(*, out: Path = Path("results/theory"), quick: bool = False) -> None:
    """Measure Theorem 1 and Corollary 1: what is lost against T, C_pi, d and H, beside the bounds.

    Args:
        out: New directory for the records, the figure and the page.
        quick: Seconds instead of minutes, for a look.
    """
    console = Console()
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        for name, stage in (("theorem", theory.start), ("lock data", lock_coverage.start)):
            task = bar.add_task(name)
            for done, total in stage(out, quick):
                bar.update(task, completed=done, total=total)
    report_theory(out)
    console.print(slope_table(read_measurements(out)))
    console.print(lock_table(read_rows(out, "lock.jsonl")))
    console.print(f"figure: {out / 'theory.png'}, page: {out / 'theory.html'}")


def report_theory(out: Path) -> None:
    """Draw the figure and write the page and the summary of finished measurements."""
    rows = read_measurements(out)
    picture = draw(rows)
    write_bytes(out / "theory.png", picture)
    write_bytes(out / "theory.html", _page(rows, picture, out).encode())
    names = (
        "problem",
        "C_pi",
        "slope",
        "cumulative",
        "first_loss",
        "bound",
        "samples",
        "corollary",
    )
    lock_rows = lock_lines(read_rows(out, "lock.jsonl"))
    summary = {
        "slopes": [dict(zip(names, line, strict=True)) for line in slopes(rows)],
        "lock": [dict(zip(LOCK_COLUMNS, line, strict=True)) for line in lock_rows],
    }
    write_json(out / "summary.json", summary)


def read_rows(out: Path, name: str = "records.jsonl") -> list[Row]:
    """Read the records of a directory."""
    path = out / name
    if not path.exists():
        raise HyqError(f"{out} holds no measurements: make them with 'hyq reproduce theory'")
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_measurements(out: Path) -> list[Row]:
    """Read the runs of Algorithm 1, each with the right-hand side of Theorem 1."""
    rows = read_rows(out)
    for row in rows:
        row["bound"] = cumulative_bound(_setting(row), row["iterations"], row["m_off"])
    return rows


def _setting(row: Row) -> Setting:
    return theory.setting(row["transfer"], row["rank"], row["horizon"], row["v_max"])


def curve(rows: Iterable[Row], by: str, of: str = "cumulative") -> tuple[list[float], list[float]]:
    """Return the mean of `of` over seeds for each value of `by`, in order."""
    groups: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row[of])
    keys = sorted(groups)
    return keys, [float(np.mean(groups[key])) for key in keys]


def slope(x: list[float], y: list[float], last: int = 3) -> float:
    """Fit the log-log slope of the last points."""
    kept = [(a, b) for a, b in zip(x, y, strict=True) if a > 0 and b > 0][-last:]
    if len(kept) < 2:
        return math.nan
    logs = np.log(np.array(kept))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def samples_needed(rows: list[Row], epsilon: float) -> tuple[int, bool]:
    """Return 2 H T for the first T from which on the average policy is within `epsilon`.

    Every T was a run of its own, with m_off = T. If none is near enough it returns the largest
    number tried, and False.
    """
    x, y = curve(rows, "iterations")
    near = [loss <= epsilon * t for t, loss in zip(x, y, strict=True)]
    first = len(near) - next((i for i, ok in enumerate(reversed(near)) if not ok), len(near))
    reached = first < len(near)
    return int(2 * rows[0]["horizon"] * x[first if reached else -1]), reached


def samples_promised(rows: list[Row], epsilon: float) -> float:
    """Return what Corollary 1 asks for, on average over instances."""
    instances = {row["seed"]: row for row in rows}.values()
    return float(np.mean([sample_complexity(_setting(row), epsilon) for row in instances]))


def select(rows: Iterable[Row], panel: str, **wanted: Any) -> list[Row]:
    """Return the rows of one panel with the given values."""
    return [
        row
        for row in rows
        if row["panel"] == panel and all(row[name] == value for name, value in wanted.items())
    ]


def slope_table(rows: list[Row]) -> Table:
    """Lay out the slope against T for every problem and C_pi."""
    table = Table(title="Cumulative suboptimality against T", title_justify="left", box=SIMPLE)
    for name in SLOPE_COLUMNS:
        table.add_column(name, justify="left" if name == "problem" else "right")
    for cells in slopes(rows):
        table.add_row(*cells)
    return table


SLOPE_COLUMNS = (
    "problem",
    "C_pi",
    "slope",
    "lost at largest T",
    "by f^1",
    "Theorem 1",
    f"samples to {EPSILON:g}",
    "Corollary 1",
)


def slopes(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the columns as text: a line for each problem and C_pi, means over instances."""
    lines: list[tuple[str, ...]] = []
    for problem in COLOURS:
        for share in theory.SHARES:
            mine = select(rows, "rates", problem=problem, share=share)
            if not mine:
                continue
            x, y = curve(mine, "iterations")
            _, first = curve(mine, "iterations", "first_loss")
            _, bound = curve(mine, "iterations", "bound")
            transfer = float(np.mean([row["transfer"] for row in mine]))
            samples, reached = samples_needed(mine, EPSILON)
            least = samples == 2 * mine[0]["horizon"] * x[0]
            sign = ("≤ " if least else "") if reached else "> "
            lines.append(
                (
                    problem,
                    f"{transfer:.2f}",
                    f"{slope(x, y):.2f}",
                    f"{y[-1]:.3g}",
                    f"{first[-1]:.2g}",
                    f"{bound[-1]:.2g}",
                    f"{sign}{samples:,}",
                    f"{samples_promised(mine, EPSILON):.2g}",
                )
            )
    return lines


def lock_table(rows: list[Row]) -> Table:
    """Lay out what the inspection said of each dataset, and what Hy-Q needed."""
    table = Table(title="The lock's datasets", title_justify="left", box=SIMPLE)
    for name in LOCK_COLUMNS:
        table.add_column(name, justify="left" if name == "data" else "right")
    for cells in lock_lines(rows):
        table.add_row(*cells)
    return table


LOCK_COLUMNS = ("data", "C_pi", "condition", "no support", "escaping", "Hy-Q solves", "samples")


def lock_lines(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return a line a dataset: medians over seeds."""
    lines: list[tuple[str, ...]] = []
    for data in lock_coverage.DATA:
        mine = [row for row in rows if row["data"] == data]
        if not mine:
            continue
        solved = sum(row["solved"] for row in mine)
        samples = int(np.median([row["online_steps"] for row in mine]))
        lines.append(
            (
                data,
                _median(mine, "transfer"),
                _median(mine, "condition"),
                _median(mine, "unsupported"),
                _median(mine, "escaping"),
                f"{solved} of {len(mine)}",
                f"{samples:,}" if 2 * solved > len(mine) else f"> {samples:,}",
            )
        )
    return lines


def _median(rows: list[Row], name: str) -> str:
    values = [math.inf if row[name] is None else row[name] for row in rows]
    return f"{float(np.median(values)):.3g}"


def draw(rows: list[Row]) -> bytes:
    """Draw all panels; return a PNG."""
    figure = Figure(figsize=(13.5, 12), layout="constrained")
    axes = figure.subplots(3, 3)
    for axis, problem in zip(axes[0], COLOURS, strict=True):
        _draw_rates(axis, rows, problem)
    for axis, panel, key, label, title in (
        (axes[1, 0], "rates", "iterations", "iterations T", "Theorem 1 (dashed), p = 1/4"),
        (axes[1, 1], "sizes", "rank", "rank d", "against d, bound dashed"),
        (axes[1, 2], "horizons", "horizon", "horizon H", "against H, bound dashed"),
    ):
        _draw_bound(axis, rows, panel, key, label, title)
    _draw_samples(axes[2, 0], rows)
    _draw_forgetting(axes[2, 1], rows)
    _draw_comparators(axes[2, 2], rows)
    axes[0, 0].set_ylabel("cumulative suboptimality")
    axes[1, 0].set_ylabel("cumulative suboptimality")
    axes[2, 0].set_ylabel("samples, offline and online")
    axes[2, 1].set_ylabel("cumulative suboptimality")
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _finish(axis: Axes, label: str, title: str) -> None:
    if axis.get_xscale() == "log":
        low, high = axis.get_xlim()
        axis.set_xscale("log", base=2)
        axis.set_xlim(low, high)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(label)
    axis.set_title(title, loc="left", fontsize=10)
    axis.grid(alpha=0.25, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=7.5)


def _draw_rates(axis: Axes, rows: list[Row], problem: str) -> None:
    for share, shade in zip(theory.SHARES, SHADES, strict=True):
        mine = select(rows, "rates", problem=problem, share=share)
        if not mine:
            continue
        x, y = curve(mine, "iterations")
        transfer = float(np.mean([row["transfer"] for row in mine]))
        name = f"C = {transfer:.1f}, slope {slope(x, y):.2f}"
        axis.loglog(x, y, color=shade, marker="o", markersize=4, label=name)
    x, _ = curve(select(rows, "rates", problem=problem), "iterations")
    if x:
        guide = np.array(x)
        axis.loglog(x, np.sqrt(guide), color="#999999", linestyle=":", label="slope 1/2")
    axis.margins(y=0.3)
    _finish(axis, "iterations T (m_off = T)", problem)


def _draw_bound(axis: Axes, rows: list[Row], panel: str, key: str, label: str, title: str) -> None:
    """Draw what was lost, and dashed what Theorem 1 allows, with the slope of each."""
    for problem, colour in COLOURS.items():
        mine = select(rows, panel, problem=problem, share=theory.SHARES[1])
        x, y = curve(mine, key)
        _, bound = curve(mine, key, "bound")
        if x:
            fit = f"slope {slope(x, y, len(x)):.2f}, bound {slope(x, bound, len(x)):.2f}"
            axis.loglog(x, y, color=colour, marker="o", markersize=4, label=f"{problem}, {fit}")
            axis.loglog(x, bound, color=colour, linestyle="--")
    _finish(axis, label, title)


def _draw_samples(axis: Axes, rows: list[Row]) -> None:
    """Draw 2 H T against how near the average policy of T iterations came, beside Corollary 1."""
    for problem, colour in COLOURS.items():
        mine = select(rows, "rates", problem=problem, share=theory.SHARES[1])
        if not mine:
            continue
        t, lost = curve([row for row in mine if row["cumulative"] > 0], "iterations")
        near = [loss / rounds for loss, rounds in zip(lost, t, strict=True)]
        samples = [2 * mine[0]["horizon"] * rounds for rounds in t]
        promised = [samples_promised(mine, epsilon) for epsilon in near]
        axis.loglog(near, samples, color=colour, marker="o", markersize=4, label=problem)
        axis.loglog(near, promised, color=colour, linestyle="--")
    _finish(axis, "average policy within epsilon", "Corollary 1 (dashed), p = 1/4")
    axis.set_xscale("log", base=10)
    axis.invert_xaxis()


def _draw_forgetting(axis: Axes, rows: list[Row]) -> None:
    for problem, marker in (("tabular", "o"), ("lock", "s")):
        for use, colour in USES.items():
            x, y = curve(select(rows, "forgetting", problem=problem, use=use), "m_off")
            if x:
                name = f"{problem}, {use}"
                style = "--" if use == "balanced" else "-"
                axis.loglog(x, y, style, color=colour, marker=marker, markersize=4, label=name)
    _finish(axis, "offline samples a step, m_off", "forgetting: m_off below T")


def _draw_comparators(axis: Axes, rows: list[Row]) -> None:
    mine = select(rows, "comparators")
    for problem, colour in COLOURS.items():
        for covered, marker in ((False, "o"), (True, "x")):
            points = select(mine, "comparators", problem=problem, optimal_covered=covered)
            if points:
                x = [row["comparator_value"] / row["optimal_value"] for row in points]
                y = [row["final_value"] / row["optimal_value"] for row in points]
                name = f"{problem}, optimum {'covered too' if covered else 'not covered'}"
                axis.scatter(x, y, color=colour, marker=marker, s=24, label=name)
    low = min((row["comparator_value"] / row["optimal_value"] for row in mine), default=0.0)
    axis.plot([low, 1], [low, 1], color="#999999", linestyle=":", label="as good as covered")
    axis.axhline(1.0, color="#bbbbbb", linewidth=0.8)
    _finish(axis, "value of the covered policy / optimum", "any covered policy")
    axis.set_ylabel("value learned / optimum")


def _page(rows: list[Row], picture: bytes, out: Path) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in SLOPE_COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
        for line in slopes(rows)
    )
    lock_head = "".join(f"<th>{name}</th>" for name in LOCK_COLUMNS)
    lock_body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
        for line in lock_lines(read_rows(out, "lock.jsonl"))
    )
    manifest = read_json(out / "manifest.json")
    made = html.escape(" ".join(manifest["command"]))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Theorem 1, measured</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2rem auto;
  padding: 0 1rem; }} img {{ width: 100%; }}
table {{ border-collapse: collapse; font-size: .9rem; }} th, td {{ text-align: right;
  padding: .2rem .8rem; border-bottom: 1px solid #e6e6e6; font-variant-numeric: tabular-nums; }}
th:first-child, td:first-child {{ text-align: left; }}
</style></head><body>
<h1>Theorem 1, measured</h1>
<p>Algorithm 1 with m<sub>on</sub> = 1 and m<sub>off</sub> = T on random tabular MDPs (8 states, 4
actions, coin-flip rewards), random linear MDPs (8 features, the same rewards) and the latent MDP of
the combination lock, each with a class that is complete: values between 0 and what can still be
earned. Offline pairs are drawn from a mixture of the comparator's occupancy (share p)
and the worst policy's, so that C<sub>&pi;</sub> is about &radic;(H/p). Lines are means over
{len({row["seed"] for row in rows})} instances; slopes are of the last three points. The theorem
promises a slope of 1/2 once T exceeds about C<sub>&pi;</sub><sup>2</sup>; before that, every policy
may lose all there is, and the slope is one.</p>
<img alt="Cumulative suboptimality" src="data:image/png;base64,{b64encode(picture).decode()}">
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
<p>The bounds are the right-hand sides with all constants of the corrected proof, at probability
0.95. The panels against d and H have p = 1/4 and T = 256 (16 if quick). "Samples to {EPSILON:g}"
are the offline and online samples, 2 H T, of the first T in the figure from which on the average
policy of T iterations is within {EPSILON:g} of the comparator.</p>
<h2>Which data is better? Inspection against sample complexity, on the lock</h2>
<table><thead><tr>{lock_head}</tr></thead><tbody>{lock_body}</tbody></table>
<p>Coverage is that of the optimal policy in its own latent features; samples are the online samples
of V-type Hy-Q until the lock is solved. The two datasets of the paper have nearly the same
C<sub>&pi;</sub>; what tells them apart is that occupancy data leads to states it never logged.</p>
<p>Made by <code>{made}</code>, commit {html.escape(str(manifest["commit"]))}.</p>
</body></html>
"""
