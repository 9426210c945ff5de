"""The Montezuma comparison: learning curves, Hy-Q beside RND, maps of rooms, a table, a page."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from hyq.core.types import FloatArray
from hyq.report.curves import GRID_POINTS, Level, Panel, draw_curves, write_figure
from hyq.report.html import image_file, publish
from hyq.report.records import SuiteRecords, algorithm_name, grouped, is_offline
from hyq.report.suite import Line, curves_and_levels
from hyq.report.tables import TextTable, number
from hyq.report.video import CLIP, STRIP, draw_rooms, draw_video, video_title
from hyq.runs.montezuma_suite import read_datasets, read_video, video_place
from hyq.runs.video import EpisodeFacts, Video

ALGORITHMS = ("hyq", "hyq+cql", "dqfd", "rnd", "cql", "bc")
"""In the order of the table and the legend."""
DATA = {
    "montezuma/easy": ("easy: all of the expert's", "#7fb2c4"),
    "montezuma/medium": ("medium: 80 % of the expert's, 20 % random", "#1f6f8b"),
    "montezuma/hard": ("hard: half of the expert's, half random", "#0b3c4d"),
}
"""What each dataset is made of, and the colour of Hy-Q on it."""
HARDEST, NO_DATA = list(DATA)[-1], "none"
RECENT = 100
"""Training episodes that the moving average is over."""
Y_LABEL = f"return of the last {RECENT} training episodes"
GOOD_RETURN = 2500
"""Points that take most of the expert's way: several rooms, and the largest rewards."""


def read_lines(records: SuiteRecords) -> list[Line]:
    """Group the runs that have begun: the hardest data first, what learns without data last."""
    begun = [run for run in records.runs if run.rows]
    groups = grouped(
        begun, lambda run: (run.setting("data") or NO_DATA, str(run.setting("algorithm")))
    )
    order = [(data, name) for data in (*reversed(DATA), NO_DATA) for name in ALGORITHMS]
    return [
        Line(algorithm_name(key[1]), *key, True, tuple(groups[key]))
        for key in order
        if key in groups
    ]


def steps(line: Line) -> int:
    """Return the online steps of the run that came furthest."""
    return max(run.rows[-1]["online_steps"] for run in line.runs)


def recent(line: Line) -> list[list[float]]:
    """Return, of each run, the returns of its newest training episodes."""
    ended = ([e[1] for row in run.rows for e in row.get("episodes", ())] for run in line.runs)
    return [returns[-RECENT:] for returns in ended if returns]


def evaluated(line: Line) -> float | None:
    """Return the newest evaluation, averaged over the runs; None before the first."""
    last = [values[-1] for run in line.runs if (values := run.points("eval_return")[1])]
    return float(np.mean(last)) if last else None


def score(line: Line) -> float:
    """Return what was reached: the mean of the last episodes, or the evaluation."""
    means = [np.mean(returns) for returns in recent(line)]
    return float(np.mean(means)) if means else evaluated(line) or 0.0


def speed(line: Line) -> float | None:
    """Return online steps a second of training, evaluations left out."""
    rows = [row for run in line.runs for row in run.rows if row["online_steps"]]
    seconds = sum(sum(row["seconds"].values()) for row in rows)
    taken = sum(run.rows[-1]["online_steps"] for run in line.runs)
    return taken / seconds if taken and seconds else None


def cells(line: Line, video: Video | None) -> dict[str, str]:
    """Return a row of the table, by the names of its columns."""
    means = [float(np.mean(returns)) for returns in recent(line)]
    ended = [total for returns in recent(line) for total in returns]
    shown = ended or ([one.total for one in video.episodes] if video else [])
    good = f"{np.mean(np.array(shown) >= GOOD_RETURN):.0%}" if shown else "-"
    return {
        "algorithm": line.label,
        "data": line.panel.rpartition("/")[2],
        "steps": "-" if is_offline(line.algorithm) else f"{steps(line) / 1e6:g}M",
        "runs": str(len(line.runs)),
        f"last {RECENT}": f"{np.mean(means):,.0f}" if means else "-",
        "worst-best": f"{min(means):,.0f}-{max(means):,.0f}" if len(means) > 1 else "-",
        f"≥ {GOOD_RETURN:,}": good + "*" * bool(shown and not ended),
        "eval.": number(evaluated(line)),
        "video": number(None if video is None else video.facts.mean_return),
        "steps/s": number(speed(line)),
    }


def conclusion(lines: list[Line]) -> str:
    """Say who is best on the hardest data that was learned from, and beside what."""
    hardest = lines[0].panel
    ranked = sorted((one for one in lines if one.panel in (hardest, NO_DATA)), key=score)
    scores = ", ".join(f"{one.label} {score(one):,.0f}" for one in reversed(ranked))
    return f"Returns with {hardest.rpartition('/')[2]} data, the highest first: {scores}."


def _grid(lines: list[Line]) -> FloatArray:
    return np.linspace(0, max(map(steps, lines)) or 1, GRID_POINTS)


def _levels(facts: Mapping[str, EpisodeFacts], *names: str) -> list[Level]:
    """Mark what the expert earns, and what the episodes of a dataset earn on average."""
    marks = ((facts[name].mean_return, name == "expert") for name in names if name in facts)
    return [
        Level(value, note=f"{'expert' if expert else 'data'}: {value:,.0f}", style=":",
              note_below=not expert)
        for value, expert in marks
    ]  # fmt: skip


def learning_curves(lines: list[Line], facts: Mapping[str, EpisodeFacts]) -> Figure:
    """Draw the recent return against online steps, a panel a dataset (the paper's Figure 5)."""
    grid, panels = _grid(lines), []
    for data in [name for name in DATA if any(one.panel == name for one in lines)] or DATA:
        here = sorted(
            (one for one in lines if one.panel in (data, NO_DATA)),
            key=lambda one: ALGORITHMS.index(one.algorithm),
        )
        curves, levels = curves_and_levels(here, grid, "recent_return", evaluated)
        levels += _levels(facts, "expert", data)
        title = DATA[data][0]
        panels.append(Panel(title, curves, levels, y_label=Y_LABEL, y_range=(0.0, None)))
    return draw_curves(panels, size=(4.6, 4.3))


def beside_rnd(lines: list[Line], facts: Mapping[str, EpisodeFacts]) -> Figure:
    """Draw Hy-Q on each dataset and RND, which learns without one (the paper's Figure 1)."""
    curves, grid = [], _grid(lines)
    for one in lines:
        if one.algorithm in ("hyq", "rnd"):
            curve = one.curve(grid, "recent_return")
            color = DATA[one.panel][1] if one.panel in DATA else curve.color
            label = f"{one.label}, {one.panel.replace('none', 'no').rpartition('/')[2]} data"
            curves.append(replace(curve, label=label, color=color))
    panel = Panel("", curves, _levels(facts, "expert"), y_label=Y_LABEL, y_range=(0.0, None))
    return draw_curves([panel], size=(6.6, 4.6))


def report_montezuma(path: Path, console: Console) -> None:
    """Write the figures, the videos and the page from the records, finished or not."""
    records, facts = SuiteRecords.read(path), read_datasets(path)
    lines = read_lines(records)
    videos = [read_video(path, one.algorithm, one.runs[0].setting("data")) for one in lines]
    curves, rnd = learning_curves(lines, facts), beside_rnd(lines, facts)
    write_figure(curves, path / "figure.svg")
    for suffix in (".png", ".svg"):
        write_figure(rnd, path / f"rnd{suffix}")
    rows = [cells(line, video) for line, video in zip(lines, videos, strict=True)]
    recorded = [(one, made) for one, made in zip(lines, videos, strict=True) if made is not None]
    maps = {
        "data": {f"data: {n.rpartition('/')[2]}": one for n, one in facts.items() if n in DATA},
        "policies": {video_title(video): video.facts for _, video in recorded},
    }
    for name, shown in maps.items():
        if shown:
            write_figure(draw_rooms(shown), path / f"rooms-{name}.png")
    publish(
        records,
        curves,
        TextTable(
            list(rows[0]), [list(row.values()) for row in rows], records.manifest["title"], left=2
        ),
        console,
        conclusion(lines),
        "montezuma.html",
        curves=image_file(path / "figure.svg", "Learning curves on the datasets"),
        rnd=image_file(path / "rnd.svg", "Hy-Q and RND against online steps", kind=""),
        rooms=[image_file(path / f"rooms-{k}.png", f"Rooms that the {k} visit") for k in maps],
        videos=[_clip(path, *one) for one in recorded if one[0].panel in (HARDEST, NO_DATA)],
    )


def _clip(path: Path, line: Line, video: Video) -> list[dict[str, str]]:
    """Return the clip and the strip of what was learned, drawn where they are missing."""
    place = video_place(path, line.algorithm, line.runs[0].setting("data"))
    if not (place / CLIP).exists():
        draw_video(video, place)
    alt = f"{line.label}'s best episode"
    strip = image_file(place / STRIP, f"Images of {alt}", "strip")
    return [image_file(place / CLIP, alt, "clip"), strip]
