"""Figures as files: panels drawn by matplotlib, with the name of every line beside it."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from hyq.core.files import write_bytes
from hyq.report.figures import Curve, Level, Panel

INSIDE = 0.75
"""A curve that ends left of this share of the axis is named where it ends, others in the margin."""
FONT, LINE_HEIGHT, LETTER = 8.0, 0.15, 0.065
"""Points of the names, and inches from one to the next and of one letter."""
HALO = [withStroke(linewidth=2.5, foreground="white")]


def draw_panels(
    panels: Sequence[Panel],
    *,
    columns: int = 4,
    size: tuple[float, float] = (5.4, 3.9),
    title: str = "",
    share_y: bool = False,
) -> Figure:
    """Draw panels of a size in inches side by side."""
    # Names are shown as they are: a dollar sign in one does not begin a formula.
    with rc_context({"text.parse_math": False}):
        figure, grid = panel_grid(len(panels), columns, size)
        extents = [extent for panel in panels if (extent := panel.extent())]
        shared = (
            (min(low for low, _ in extents), max(high for _, high in extents))
            if extents and share_y
            else None
        )
        for number, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
            _draw_panel(axes, panel, shared or panel.extent(), size)
            if number % columns and panel.y_label == panels[number - 1].y_label:
                axes.set_ylabel("")
            axes.set_title(fill(panel.title, int(11 * size[0])), loc="left", fontsize=10.5, pad=24)
        if title:
            figure.suptitle(title, x=0.01, ha="left")
    return figure


def panel_grid(count: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Make a figure of so many axes of a size in inches, in rows of at most `columns`."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def _draw_panel(
    axes: Axes, panel: Panel, extent: tuple[float, float] | None, size: tuple[float, float]
) -> None:
    for curve in panel.shown:
        if isinstance(curve, Curve) and curve.end:
            _draw_curve(axes, curve)
    for one in panel.shown:
        if isinstance(one, Level):
            axes.axhline(one.value, color=one.color, linestyle=_style(one.dashes), linewidth=1.4)
            if one.low is not None and one.high is not None:
                axes.axhspan(one.low, one.high, color=one.color, alpha=0.07, linewidth=0)
    if extent is not None:
        _scale(axes, panel, extent)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.text(0, 1.05, panel.said, transform=axes.transAxes, fontsize=FONT, color="#666666")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    _name(axes, panel, size)


def _draw_curve(axes: Axes, curve: Curve) -> None:
    look: dict[str, Any] = {"color": curve.color, "linestyle": _style(curve.dashes)}
    if curve.kind == "area":
        axes.fill_between(curve.x, curve.y, color=curve.color, alpha=0.8, linewidth=0)
        return
    if curve.kind == "points":
        look["linestyle"] = ""
    marker = curve.marker or None
    axes.plot(
        curve.x, curve.y, **look, linewidth=2, marker=marker, markersize=4, zorder=3,
        label=curve.label if curve.kind == "points" else "",
    )  # fmt: skip
    for x, y in curve.others:
        axes.plot(x, y, **look, linewidth=0.9, marker=marker, markersize=2.5, alpha=0.7, zorder=2.5)
    if len(curve.low):
        axes.fill_between(
            curve.x, curve.low, curve.high, color=curve.color, alpha=0.18, linewidth=0
        )
    if curve.interval is not None and curve.end:
        axes.plot([curve.end[0]] * 2, curve.interval, color=curve.color, marker="_", linewidth=1.5)


def _style(dashes: str) -> str | tuple[int, tuple[float, ...]]:
    return (0, tuple(float(part) / 2 for part in dashes.split())) if dashes else "-"


def _scale(axes: Axes, panel: Panel, extent: tuple[float, float]) -> None:
    """Choose the axes' scales and ranges."""
    if panel.log_x:
        ends = [x for one in panel.shown if isinstance(one, Curve) for x in one.x]
        if min(ends, default=1) > 0:
            axes.set_xscale("log", base=panel.log_x)
        else:
            first = panel.first_power
            last = max(*ends, first)
            axes.set_xscale("symlog", base=panel.log_x, linthresh=first, linscale=0.4)
            powers = LogLocator(panel.log_x).tick_values(first, last)
            axes.set_xticks([0, *(power for power in powers if first <= power <= last)])
            axes.set_xlim(0, last)
            axes.xaxis.set_minor_locator(NullLocator())
    elif panel.x_range is None:
        axes.set_xlim(left=min(0, *axes.get_xlim()) if axes.lines else 0)
    if panel.x_range is not None:
        axes.set_xlim(panel.x_range)
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
        return
    low, high = panel.y_range or extent
    pad = 0.04 * ((high - low) or abs(high) or 1.0)
    axes.set_ylim(low - pad, high + pad)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def _name(axes: Axes, panel: Panel, size: tuple[float, float]) -> None:
    """Write the name of every line beside it, apart from one another."""
    to_share = axes.transData + axes.transAxes.inverted()
    inside: list[tuple[float, float, Curve | Level]] = []
    margin: list[tuple[float, float, Curve | Level]] = []
    for one in panel.shown:
        end = (axes.get_xlim()[1], one.value) if isinstance(one, Level) else one.end
        if not one.label or end is None or (isinstance(one, Curve) and one.kind == "points"):
            continue
        x, y = to_share.transform(end)
        fits = x + LETTER * len(panel.name(one)) / (size[0] - 2) < 1 and x < INSIDE
        (inside if fits else margin).append((float(x), float(y), one))
    gap = LINE_HEIGHT / (size[1] - 1)
    for here, lift in ((inside, gap / 2), (margin, 0.0)):
        here.sort(key=lambda item: item[1])
        places = spread([y + lift for _, y, _ in here], gap)
        for (x, y, one), place in zip(here, places, strict=True):
            line = {
                "shrinkA": 0,
                "shrinkB": 0,
                "arrowstyle": "-",
                "color": one.color,
                "lw": 0.6,
                "relpos": (0, 0.5),
            }
            axes.annotate(
                cut(panel.name(one)),
                (x, y),
                (x + 0.015 if lift else 1.035, place),
                xycoords="axes fraction",
                textcoords="axes fraction",
                fontsize=FONT,
                color=one.color,
                va="center",
                annotation_clip=False,
                path_effects=HALO,
                zorder=5,
                arrowprops=None if lift else line,
            )
    if any(isinstance(one, Curve) and one.kind == "points" for one in panel.shown):
        axes.legend(fontsize=FONT, edgecolor="none")


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move sorted places apart, each at least `gap` above the one before, and all within [0, 1]."""
    found = list(places)
    for index in range(1, len(found)):
        found[index] = max(found[index], found[index - 1] + gap)
    top = 1.0 + gap
    for index in reversed(range(len(found))):
        top = min(found[index], top - gap)
        found[index] = top
    return found


def cut(name: str, letters: int = 44) -> str:
    """Leave out the end of a name that would take the figure's place."""
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def short(value: float) -> str:
    """Show a round number in a few characters: 250k, 1.5M."""
    units = ((unit, name) for unit, name in ((1e6, "M"), (1e3, "k")) if abs(value) >= unit)
    unit, name = next(units, (1, ""))
    return f"{value / unit:g}{name}" if value % (unit / 100) == 0 else f"{value:,g}"


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all."""
    write_bytes(path, figure_bytes(figure))


def figure_bytes(figure: Figure) -> bytes:
    """Encode a figure as PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
