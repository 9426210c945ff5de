"""Videos of a saved policy: images of its best episode, a clip, and a map of the rooms reached."""

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.table import Table

from hyq.core.files import write_bytes
from hyq.core.images import encode_gif
from hyq.core.types import Array
from hyq.envs.montezuma import FLOORS, START_ROOM, room_place
from hyq.report.plot import panel_grid, write_figure
from hyq.report.records import algorithm_name
from hyq.report.tables import facts_table, number
from hyq.runs.video import EpisodeFacts, Moment, Video, replay

STRIP, CLIP, ROOMS = "strip.png", "clip.gif", "rooms.png"
IMAGES_A_ROW = 6
STEPS_TO_SETTLE = 8
CLIP_IMAGES = 400
"""At most so many in a clip; a longer episode is shown with steps left out."""
SECONDS_AN_IMAGE = 0.05
LAST_IMAGE_SECONDS = 2.0
SHADES = LinearSegmentedColormap.from_list("rooms", ("#eef4f6", "#7fb2c4", "#1f6f8b", "#0b3c4d"))
MAPS_A_ROW = 3


def video_table(made: Video) -> Table:
    """Sum the episodes of a video up."""
    returns, summed = [one.total for one in made.episodes], made.facts
    facts = {
        "episodes": f"{len(returns)}, a random action in {made.epsilon:.1%} of the steps",
        "return, mean": f"{summed.mean_return:,.6g} ({min(returns):g} to {max(returns):g})",
        "length, mean": f"{summed.transitions / summed.episodes:,.0f}",
        "best episode": f"seed {made.best.seed}, {made.best.length:,} steps",
    }
    if summed.room_shares:
        shares = (f"{room} ({share:.0%})" for room, share in summed.room_shares.items())
        facts["rooms, by share of episodes"] = ", ".join(shares)
    return facts_table(facts, video_title(made))


def video_title(made: Video) -> str:
    """Name the policy of a video."""
    about = made.about
    if "algorithm" not in about:
        return f"a policy on {made.environment.env}"
    label = algorithm_name(about["algorithm"])
    return f"{label} on {about['data']}" if about.get("data") else label


def draw_video(made: Video, place: Path, images: int = 12) -> None:
    """Draw the strip, the clip and the map of rooms into a directory."""
    write_figure(draw_strip(made, images), place / STRIP)
    write_clip(made, place / CLIP)
    if made.facts.room_shares:
        write_figure(draw_rooms({video_title(made): made.facts}), place / ROOMS)


def chosen_moments(moments: Sequence[Moment], count: int) -> list[int]:
    """Choose steps that tell the story: the first, the last, new rooms and rewards between them.

    Too many are thinned out evenly, and where too few happened, evenly spaced ones fill up.
    """
    last = len(moments) - 1
    seen: set[int | None] = {moments[0].room}
    events = set()
    for before, now in pairwise(moments):
        if now.room not in seen:
            events.add(_settled(moments, now.step))
        elif now.score > before.score:
            events.add(now.step)
        seen.add(now.room)
    story = sorted(events - {0, last})
    if len(story) > count - 2:
        story = [story[i] for i in np.linspace(0, len(story) - 1, count - 2).round().astype(int)]
    steps = {0, last, *story}
    while len(steps) < min(count, last + 1):
        ordered = sorted(steps)
        widest = int(np.diff(ordered).argmax())
        steps.add((ordered[widest] + ordered[widest + 1]) // 2)
    return sorted(steps)


def _settled(moments: Sequence[Moment], entered: int) -> int:
    """Return a step shortly after a room was entered, when the screen shows it."""
    shown = moments[entered : entered + STEPS_TO_SETTLE + 1]
    inside = takewhile(lambda moment: moment.room == moments[entered].room, shown)
    return max(moment.step for moment in inside)


def rendered(made: Video, steps: Container[int]) -> list[tuple[Moment, Array]]:
    """Return the moments of the best episode at some steps, with their images."""
    return [(one, one.image) for one in replay(made, steps) if one.image is not None]


def draw_strip(made: Video, count: int) -> Figure:
    """Draw chosen images of the best episode in order, each with its score, room and step."""
    shown = rendered(made, chosen_moments(list(replay(made)), count))
    height, width = shown[0][1].shape[:2]
    figure, grid = panel_grid(len(shown), IMAGES_A_ROW, (1.8, 0.3 + 1.7 * height / width))
    for axes, (moment, image) in zip(grid, shown, strict=False):
        axes.imshow(image, interpolation="nearest")
        axes.set_axis_off()
        where = "" if moment.room is None else f"room {moment.room}, "
        axes.set_title(number(moment.score), fontsize=9.5, fontweight="bold", loc="left", pad=3)
        step = f"{where}step {moment.step:,}"
        axes.set_title(step, fontsize=7.5, color="#666666", loc="right", pad=3)
    title = f"{video_title(made)}: the best of {len(made.episodes)} episodes, return "
    title += f"{made.best.total:,.6g} in {made.best.length:,} steps"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure


def write_clip(made: Video, path: Path) -> None:
    """Write the best episode as an animated GIF, with steps left out where it is long."""
    stride = max(1, -(-len(made.actions) // CLIP_IMAGES))
    wanted = {*range(0, len(made.actions) + 1, stride), len(made.actions)}
    images = [image for _, image in rendered(made, wanted)]
    durations = [SECONDS_AN_IMAGE] * (len(images) - 1) + [LAST_IMAGE_SECONDS]
    write_bytes(path, encode_gif(images, durations))


def draw_rooms(maps: Mapping[str, EpisodeFacts]) -> Figure:
    """Draw pyramids below titles, each room shaded by the share of episodes that visited it."""
    figure, grid = panel_grid(len(maps), MAPS_A_ROW, (4.9, 2.6))
    for axes, (title, facts) in zip(grid, maps.items(), strict=True):
        _draw_map(axes, title, facts)
    return figure


def _draw_map(axes: Axes, title: str, facts: EpisodeFacts) -> None:
    for room in range(FLOORS[-1].stop):
        floor, right = room_place(room)
        share = facts.room_shares.get(room, 0.0)
        fill = SHADES(0.08 + 0.92 * share) if share else "#ffffff"
        start = {"edgecolor": "#d1495b", "linewidth": 1.6, "zorder": 2}
        edge = start if room == START_ROOM else {"edgecolor": "#c9d3d7", "linewidth": 0.8}
        corner = (right - 0.47, -floor - 0.46)
        axes.add_patch(Rectangle(corner, 0.94, 0.92, facecolor=fill, **edge))  # type: ignore[arg-type]
        ink = "#b0b8bb" if not share else "white" if share > 0.35 else "#12333f"
        axes.text(right - 0.4, 0.38 - floor, str(room), fontsize=6.5, color=ink, va="top")
        shown = "" if not share else f"{share:.0%}" if share >= 0.005 else "<1%"
        place = {"ha": "center", "va": "center"}
        axes.text(right, -floor - 0.08, shown, fontsize=8.5, color=ink, **place)  # type: ignore[arg-type]
    widest = len(FLOORS[-1]) / 2
    axes.set_xlim(-widest - 0.05, widest + 0.05)
    axes.set_ylim(-len(FLOORS) + 0.45, 0.5)
    axes.set_aspect(0.82)
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=18)
    note = f"{facts.episodes} episodes, {facts.mean_return:,.0f} points on average"
    axes.text(0, 1.03, note, transform=axes.transAxes, fontsize=8.5, color="#666666")
