"""What a person sees of a filmed policy: a strip of pictures, a clip, and a map of rooms."""

from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from matplotlib.figure import Figure
from PIL import Image
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import write_bytes
from hyq.core.types import Array
from hyq.report.rooms import RoomMap, draw_rooms
from hyq.report.runs import write_figure
from hyq.report.suite import method_name
from hyq.runs.film import FILE, Actor, Film, Kept, Shot, play_film, replay

STRIP, CLIP, ROOMS = "strip.png", "clip.gif", "rooms.png"
PICTURES_A_ROW = 6
STEPS_TO_SETTLE = 8
CLIP_PICTURES = 400
"""At most so many in a clip; a longer episode is shown with steps left out."""
CLIP_SECONDS_A_PICTURE = 0.05
LAST_PICTURE_SECONDS = 2.0


def film(
    path: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path | None = None,
    episodes: int = 20,
    seed: int = 7,
    epsilon: float = 0.01,
    policy: Kept = "best",
    env: str | None = None,
    wrappers: tuple[str, ...] = (),
    env_parameters: str = "{}",
    pictures: int = 12,
) -> None:
    """Let a saved policy play, and make a filmstrip, a clip and a map of the rooms it reached.

    Args:
        path: A run's directory or a saved policy; or the directory of an earlier film, to draw it
            again from its record.
        out: Directory for the film; by default PATH/film, or PATH itself where that is a film.
        episodes: Episodes to play.
        seed: Chooses the episodes and their random actions; none is an episode of the training.
        epsilon: Chance of a random action.
        policy: Which of a run's policies: the best that was evaluated, or the one it ended with.
        env: Environment, for a policy outside of its run.
        wrappers: module:Class of wrappers around that environment, innermost first.
        env_parameters: Parameters of that environment, as a JSON object.
        pictures: Pictures in the strip.
    """
    if pictures < 2:
        raise HyqError(f"a strip needs two pictures, got {pictures}")
    console = Console()
    if (path / FILE).exists():
        made, place = Film.load(path), out or path
    else:
        place = out or path / "film"
        if (place / FILE).exists():
            raise HyqError(f"{place} holds a film already: choose another directory")
        actor = Actor.load(path, policy, env, wrappers, env_parameters)
        made = film_policy(actor, episodes, seed, epsilon, console)
    made.save(place)
    draw_film(made, place, pictures)
    console.print(film_table(made))
    console.print(f"film: {place}")


def film_policy(actor: Actor, episodes: int, seed: int, epsilon: float, console: Console) -> Film:
    """Let a policy play, and show how far it is."""
    columns = ("filming", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("filming", total=episodes)
        return play_film(
            actor, episodes, seed, epsilon, lambda done: bar.update(task, completed=done)
        )


def film_table(made: Film) -> Table:
    """Sum a film up."""
    returns = [take.total for take in made.takes]
    table = Table(title=film_title(made), title_justify="left", show_header=False, box=SIMPLE)
    table.add_row("episodes", f"{len(returns)}, a random action in {made.epsilon:.1%} of the steps")
    low, high = min(returns), max(returns)
    table.add_row("return, mean (least to most)", f"{made.mean_return:,.6g} ({low:g} to {high:g})")
    table.add_row("length, mean", f"{np.mean([take.length for take in made.takes]):,.0f}")
    table.add_row("best episode", f"seed {made.best.seed}, {made.best.length:,} steps")
    if made.room_shares:
        shares = (f"{room} ({share:.0%})" for room, share in made.room_shares.items())
        table.add_row("rooms, by share of episodes", ", ".join(shares))
    return table


def film_title(made: Film) -> str:
    """Name the policy of a film."""
    about = made.about
    if "algorithm" not in about:
        return f"a policy on {made.scene.env}"
    label = method_name(about["algorithm"])
    return f"{label} on {about['data']}" if about.get("data") else label


def draw_film(made: Film, place: Path, pictures: int = 12) -> None:
    """Draw all there is to see of a film into its directory."""
    moments = list(replay(made))
    draw_strip(made, moments, place / STRIP, pictures)
    write_clip(made, place / CLIP)
    if made.room_shares:
        draw_rooms([film_map(made)], place / ROOMS)


def film_map(made: Film) -> RoomMap:
    """Return the rooms of a film, to draw."""
    note = f"{len(made.takes)} episodes, {made.mean_return:,.0f} points on average"
    return RoomMap(film_title(made), made.room_shares, note)


def chosen_moments(moments: Sequence[Shot], count: int) -> list[int]:
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
        picked = np.linspace(0, len(story) - 1, count - 2).round().astype(int)
        story = [story[i] for i in picked]
    steps = {0, last, *story}
    while len(steps) < min(count, last + 1):
        ordered = sorted(steps)
        gaps = np.diff(ordered)
        widest = int(gaps.argmax())
        steps.add(ordered[widest] + int(gaps[widest]) // 2)
    return sorted(steps)


def _settled(moments: Sequence[Shot], entered: int) -> int:
    """Return a step shortly after a room was entered, when the screen shows it."""
    later = entered
    while (
        later < min(entered + STEPS_TO_SETTLE, len(moments) - 1)
        and moments[later + 1].room == moments[entered].room
    ):
        later += 1
    return later


def draw_strip(made: Film, moments: Sequence[Shot], path: Path, count: int) -> None:
    """Draw chosen pictures of the best episode in order, each with its score, room and step."""
    wanted = set(chosen_moments(moments, count))
    shots = [(shot, shot.picture) for shot in replay(made, wanted) if shot.picture is not None]
    columns = min(PICTURES_A_ROW, len(shots))
    rows = -(-len(shots) // columns)
    height, width = shots[0][1].shape[:2]
    # In inches: pictures are placed by hand, so that they stand close together.
    across, gap, line, heading = 1.7, 0.08, 0.22, 0.34
    tall = across * height / width
    size = (columns * (across + gap) + gap, heading + rows * (tall + line + gap))
    figure = Figure(figsize=size)
    for number, (shot, picture) in enumerate(shots):
        row, column = divmod(number, columns)
        left = gap + column * (across + gap)
        bottom = size[1] - heading - (row + 1) * (line + tall) - row * gap
        axes = figure.add_axes((left / size[0], bottom / size[1], across / size[0], tall / size[1]))
        axes.imshow(picture, interpolation="nearest")
        axes.set_axis_off()
        score = f"{shot.score:,.0f}" if abs(shot.score) >= 10 else f"{shot.score:.3g}"
        where = "" if shot.room is None else f"room {shot.room}, "
        axes.set_title(score, fontsize=9.5, fontweight="bold", loc="left", pad=3)
        axes.set_title(
            f"{where}step {shot.step:,}", fontsize=7.5, color="#666666", loc="right", pad=3
        )
    figure.text(
        gap / size[0],
        1 - 0.6 * heading / size[1],
        f"{film_title(made)}: the best of {len(made.takes)} episodes, "
        f"return {made.best.total:,.6g} in {made.best.length:,} steps",
        fontsize=10,
        va="center",
    )
    write_figure(figure, path)


def write_clip(made: Film, path: Path) -> None:
    """Write the best episode as an animated picture, with steps left out where it is long."""
    stride = max(1, -(-len(made.actions) // CLIP_PICTURES))
    wanted = {*range(0, len(made.actions) + 1, stride), len(made.actions)}
    pictures = [shot.picture for shot in replay(made, wanted) if shot.picture is not None]
    durations = [CLIP_SECONDS_A_PICTURE] * (len(pictures) - 1) + [LAST_PICTURE_SECONDS]
    write_bytes(path, animated(pictures, durations))


def animated(pictures: Sequence[Array], seconds: Sequence[float]) -> bytes:
    """Encode pictures as a GIF that repeats; games have few colours, so one palette serves all."""
    sample = np.concatenate(pictures[:: max(1, len(pictures) // 32)])
    palette = Image.fromarray(sample).quantize(255, dither=Image.Dither.NONE)
    frames = [
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in pictures
    ]
    buffer = BytesIO()
    frames[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[round(1000 * pause) for pause in seconds],
        loop=0,
        optimize=False,
    )
    return buffer.getvalue()
