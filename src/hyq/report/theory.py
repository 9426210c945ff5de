"""The figure, the table and the page of `hyq reproduce theory`."""

import math
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.report.figures import DASHED, DOTTED, Curve, Level, Panel
from hyq.report.html import Section, note, write_page
from hyq.report.plot import draw_panels, write_figure
from hyq.report.tables import TextTable
from hyq.runs import theory
from hyq.runs.records import RECORDS, Records
from hyq.theory.theorem import Setting, cumulative_bound, sample_complexity

SHADES = ("#9cc5d3", "#4f9bb3", "#1f6f8b", "#0b3c4d")
COLORS = {"tabular": "#1f6f8b", "linear": "#e09f3e", "lock": "#d1495b"}
USES = {"pooled": ("#1f6f8b", ""), "balanced": ("#6a994e", DASHED), "warm start": ("#9a031e", "")}
EPSILON = 0.1
"""How near the average policy must come, for the samples of Corollary 1; values are at most one."""
SLOPE_COLUMNS = {
    "problem": "problem",
    "C_pi": "C_pi",
    "slope": "slope",
    "cumulative": "lost at largest T",
    "first_loss": "by f^1",
    "bound": "Theorem 1",
    "samples": f"samples to {EPSILON:g}",
    "corollary": "Corollary 1",
}
Row = dict[str, Any]
"""One measurement: its problem and panel, T, m_off, C_pi and what was lost."""


def report_theory(out: Path, console: Console) -> None:
    """Draw the figure, write the page and the summary of finished measurements, print the table."""
    rows = read_measurements(out)
    title = "Cumulative suboptimality against T"
    slopes = TextTable(tuple(SLOPE_COLUMNS.values()), slope_rows(rows), title)
    drawn = panels(rows)
    write_figure(draw_panels(drawn, columns=3, size=(5, 3.7)), out / "theory.png")
    sections = [
        Section(panels=drawn, note=note("theory", instances=len({row["seed"] for row in rows}))),
        Section("Slopes and bounds", table=slopes, note=note("slopes", epsilon=f"{EPSILON:g}")),
    ]
    manifest = read_json(out / "manifest.json")
    said = [conclusion(rows)]
    write_page(out / "theory.html", "Theorem 1, measured", said, sections, manifest=manifest)
    rates = [dict(zip(SLOPE_COLUMNS, line, strict=True)) for line in slopes.rows]
    write_json(out / "summary.json", {"slopes": rates})
    console.print(slopes.rich())
    console.print(f"figure: {out / 'theory.png'}, page: {out / 'theory.html'}")


def conclusion(rows: list[Row]) -> str:
    """Say in one sentence whether what was lost stays below the bounds, and how fast it grows."""
    within = sum(row["cumulative"] <= row["bound"] for row in rows)
    steepest = max((float(line[2]) for line in slope_rows(rows)), default=math.nan)
    return (
        f"In {within} of {len(rows)} runs the loss is within the bound of Theorem 1, and its slope "
        f"against T is at most {steepest:.2f}, where the theorem has 1/2."
    )


def read_rows(out: Path) -> list[Row]:
    """Read the records of a directory."""
    path = out / RECORDS
    if not path.exists():
        raise HyqError(f"{out} holds no measurements: make them with 'hyq reproduce theory'")
    return Records(path).read()[0]


def read_measurements(out: Path) -> list[Row]:
    """Read the runs of Algorithm 1, each with the right-hand side of Theorem 1."""
    rows = read_rows(out)
    for row in rows:
        row["bound"] = cumulative_bound(_setting(row), row["iterations"], row["m_off"])
    return rows


def _setting(row: Row) -> Setting:
    return theory.setting(row["transfer"], row["rank"], row["horizon"], row["v_max"])


def samples_bound(rows: list[Row], epsilon: float) -> float:
    """Return the samples that Corollary 1 needs, on average over instances."""
    instances = {row["seed"]: row for row in rows}.values()
    return float(np.mean([sample_complexity(_setting(row), epsilon) for row in instances]))


def mean_curve(
    rows: Iterable[Row], by: str, of: str = "cumulative"
) -> tuple[list[float], list[float]]:
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
    x, y = mean_curve(rows, "iterations")
    near = [loss <= epsilon * t for t, loss in zip(x, y, strict=True)]
    first = len(near) - next((i for i, ok in enumerate(reversed(near)) if not ok), len(near))
    reached = first < len(near)
    return int(2 * rows[0]["horizon"] * x[first if reached else -1]), reached


def select(rows: Iterable[Row], panel: str, **wanted: Any) -> list[Row]:
    """Return the rows of one panel with the given values."""
    return [
        row
        for row in rows
        if row["panel"] == panel and all(row[name] == value for name, value in wanted.items())
    ]


def slope_rows(rows: list[Row]) -> list[list[str]]:
    """Return a row of text for each problem and C_pi: means over instances."""
    lines = []
    for problem, share in product(COLORS, theory.SHARES):
        mine = select(rows, "rates", problem=problem, share=share)
        if not mine:
            continue
        x, y = mean_curve(mine, "iterations")
        first, bound = (mean_curve(mine, "iterations", name)[1] for name in ("first_loss", "bound"))
        transfer = float(np.mean([row["transfer"] for row in mine]))
        samples, reached = samples_needed(mine, EPSILON)
        least = samples == 2 * mine[0]["horizon"] * x[0]
        sign = ("≤ " if least else "") if reached else "> "
        corollary = samples_bound(mine, EPSILON)
        line = [
            problem,
            f"{transfer:.2f}",
            f"{slope(x, y):.2f}",
            f"{y[-1]:.3g}",
            f"{first[-1]:.2g}",
        ]
        lines.append([*line, f"{bound[-1]:.2g}", f"{sign}{samples:,}", f"{corollary:.2g}"])
    return lines


def panels(rows: list[Row]) -> list[Panel]:
    """Draw what was lost, against everything that the theorem names, beside the bounds."""
    lost = "cumulative suboptimality"
    log_log = partial(Panel, log_x=2, log_y=True, y_label=lost)
    found = [
        log_log(problem, rate_curves(rows, problem), x_label="iterations T (m_off = T)")
        for problem in COLORS
    ]
    found += [
        log_log(title, bound_curves(rows, panel, key), x_label=label)
        for panel, key, label, title in (
            ("rates", "iterations", "iterations T", "Theorem 1 (dashed), p = 1/4"),
            ("sizes", "rank", "rank d", "against d, bound dashed"),
            ("horizons", "horizon", "horizon H", "against H, bound dashed"),
        )
    ]
    near, samples = "1 / epsilon of the average policy", "samples, offline and online"
    title = "Corollary 1 (dashed), p = 1/4"
    found.append(log_log(title, sample_curves(rows), x_label=near, y_label=samples, log_x=10))
    forgetting = [
        _curve(f"{problem}, {use}", *mean_curve(mine, "m_off"), color, marker, dashes)
        for problem, marker in (("tabular", "o"), ("lock", "s"))
        for use, (color, dashes) in USES.items()
        for mine in (select(rows, "forgetting", problem=problem, use=use),)
    ]
    m_off = "offline samples a step, m_off"
    found.append(log_log("forgetting: m_off below T", forgetting, x_label=m_off))
    found.append(comparator_panel(rows))
    return found


def _curve(
    label: str, x: list[float], y: list[float], color: str, marker: str = "o", dashes: str = ""
) -> Curve:
    return Curve(label, x, y, color=color, dashes=dashes, marker=marker)


def rate_curves(rows: list[Row], problem: str) -> list[Curve]:
    """Return what was lost against T for each C_pi, and a line of slope 1/2."""
    curves = []
    for share, shade in zip(theory.SHARES, SHADES, strict=True):
        mine = select(rows, "rates", problem=problem, share=share)
        x, y = mean_curve(mine, "iterations")
        if x:
            transfer = float(np.mean([row["transfer"] for row in mine]))
            curves.append(_curve(f"C = {transfer:.1f}, slope {slope(x, y):.2f}", x, y, shade))
    x, _ = mean_curve(select(rows, "rates", problem=problem), "iterations")
    return [*curves, _curve("slope 1/2", x, [t**0.5 for t in x], "#888888", "", DOTTED)]


def bound_curves(rows: list[Row], panel: str, key: str) -> list[Curve]:
    """Return what was lost, and dashed what Theorem 1 allows, with the slope of each."""
    curves = []
    for problem, color in COLORS.items():
        mine = select(rows, panel, problem=problem, share=theory.SHARES[1])
        (x, y), (_, bound) = mean_curve(mine, key), mean_curve(mine, key, "bound")
        fit = f"slope {slope(x, y, len(x)):.2f} (bound {slope(x, bound, len(x)):.2f})"
        named, bounded = f"{problem}: {fit}", _curve("", x, bound, color, "", DASHED)
        curves += [_curve(named, x, y, color), bounded] if x else []
    return curves


def sample_curves(rows: list[Row]) -> list[Curve]:
    """Return 2 H T against how near the average policy of T iterations came, and Corollary 1."""
    curves = []
    for problem, color in COLORS.items():
        mine = select(rows, "rates", problem=problem, share=theory.SHARES[1])
        t, lost = mean_curve([row for row in mine if row["cumulative"] > 0], "iterations")
        inverse = [rounds / loss for loss, rounds in zip(lost, t, strict=True)]
        samples = [2 * mine[0]["horizon"] * rounds for rounds in t]
        bound = [samples_bound(mine, 1 / one) for one in inverse]
        curves.append(_curve(problem, inverse, samples, color))
        curves.append(_curve("", inverse, bound, color, "", DASHED))
    return curves


def comparator_panel(rows: list[Row]) -> Panel:
    """Show what was learned against the value of the policy that the data covers."""
    curves: list[Curve | Level] = []
    for problem, color in COLORS.items():
        for covered, marker in ((False, "o"), (True, "x")):
            points = select(rows, "comparators", problem=problem, optimal_covered=covered)
            x = [row["comparator_value"] / row["optimal_value"] for row in points]
            y = [row["final_value"] / row["optimal_value"] for row in points]
            name = f"{problem}, optimum {'covered too' if covered else 'not covered'}"
            if x:
                curves.append(Curve(name, x, y, color=color, marker=marker, kind="points"))
    curves.append(_curve("as good as covered", [0, 1], [0, 1], "#888888", "", DOTTED))
    curves.append(Level(1.0, dashes=""))
    x_label, y_label = "value of the covered policy / optimum", "value learned / optimum"
    return Panel("any covered policy", curves, x_label, y_label)
