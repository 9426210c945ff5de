"""A map of Montezuma's pyramid: which of its rooms the episodes of a policy or a dataset reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from hyq.envs.montezuma import FLOORS, START_ROOM, room_place
from hyq.report.runs import write_figure

SHADES = LinearSegmentedColormap.from_list("rooms", ("#eef4f6", "#7fb2c4", "#1f6f8b", "#0b3c4d"))
COLUMNS = 3
_EDGE, _NEVER, _INK = "#c9d3d7", "#ffffff", "#b0b8bb"


@dataclass(frozen=True)
class RoomMap:
    """One pyramid to draw."""

    title: str
    shares: Mapping[int, float]
    """Share of the episodes that visited each room."""
    note: str = ""
    """Said below the title: how many episodes, how good."""


def draw_rooms(maps: Sequence[RoomMap], path: Path) -> None:
    """Draw pyramids side by side, each room shaded by the share of episodes that visited it."""
    columns = min(COLUMNS, len(maps))
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(4.9 * columns, 2.6 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, drawn in zip(places, maps, strict=False):
        _draw(axes, drawn)
    for axes in places[len(maps) :]:
        axes.set_axis_off()
    write_figure(figure, path)


def _draw(axes: Axes, drawn: RoomMap) -> None:
    for room in range(FLOORS[-1].stop):
        floor, right = room_place(room)
        share = drawn.shares.get(room, 0.0)
        colour = SHADES(0.08 + 0.92 * share) if share else _NEVER
        box = Rectangle(
            (right - 0.47, -floor - 0.46),
            0.94,
            0.92,
            facecolor=colour,
            edgecolor="#d1495b" if room == START_ROOM else _EDGE,
            linewidth=1.6 if room == START_ROOM else 0.8,
            zorder=2 if room == START_ROOM else 1,
        )
        axes.add_patch(box)
        ink = _INK if not share else "white" if share > 0.35 else "#12333f"
        axes.text(right - 0.4, 0.38 - floor, str(room), fontsize=6.5, color=ink, va="top")
        if share:
            shown = f"{share:.0%}" if share >= 0.005 else "<1%"
            axes.text(
                right, -floor - 0.08, shown, ha="center", va="center", fontsize=8.5, color=ink
            )
    widest = len(FLOORS[-1]) / 2
    axes.set_xlim(-widest - 0.05, widest + 0.05)
    axes.set_ylim(-len(FLOORS) + 0.45, 0.5)
    axes.set_aspect(0.82)
    axes.set_axis_off()
    axes.set_title(drawn.title, loc="left", fontsize=11, fontweight="bold", pad=18)
    axes.text(0, 1.03, drawn.note, transform=axes.transAxes, fontsize=8.5, color="#666666")
