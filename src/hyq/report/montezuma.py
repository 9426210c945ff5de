"""The Montezuma comparison: learning curves, Hy-Q beside RND, maps of rooms, a table, a page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.report.figures import DASHED, DOTTED, FEWEST_FOR_BAND, Curve, Level, Panel
from hyq.report.html import Image, Section, note, publish
from hyq.report.lines import (
    RECENT,
    RECENT_EPISODES,
    Line,
    Place,
    group_runs,
    line_panel,
    listed,
    seeds_said,
)
from hyq.report.plot import draw_panels, write_figure
from hyq.report.records import RunResult, SuiteRecords, algorithm_color, is_offline
from hyq.report.tables import TextTable, number
from hyq.report.video import CLIP, STRIP, draw_rooms, draw_video, video_title
from hyq.runs.montezuma_suite import read_datasets, read_video, video_place
from hyq.runs.video import EpisodeFacts, Video

DATA = {
    "montezuma/hard": ("hard: half of the expert's, half random", "#0b3c4d"),
    "montezuma/medium": ("medium: 80 % of the expert's, 20 % random", "#1f6f8b"),
    "montezuma/easy": ("easy: all of the expert's", "#7fb2c4"),
}
"""What each dataset is made of, the hardest first, and the colour of Hy-Q on it."""
NO_DATA = "none"
PUBLISHED = "as published"
GOOD_RETURN = 2500
"""Points that take most of the expert's way: several rooms, and the largest rewards."""


def read_lines(records: SuiteRecords) -> list[Line]:
    """Group the runs that have begun: the hardest data first, what learns without data last."""
    begun = [run for run in records.runs if run.rows]
    margins = {run.setting("margin_weight") for run in begun if run.setting("algorithm") == "dqfd"}

    def published(run: RunResult) -> str:
        """Tell DQfD with the settings it was published with from DQfD with those of its trials."""
        usual = run.setting("algorithm") == "dqfd" and run.setting("margin_weight") is None
        return PUBLISHED if usual and len(margins) > 1 else ""

    places: list[Place] = [
        (run, panel, published(run), True)
        for panel in (*DATA, NO_DATA)
        for run in begun
        if (run.setting("data") or NO_DATA) == panel
    ]
    return group_runs(places, RECENT)


def _data(line: Line) -> str | None:
    data: str | None = line.runs[0].setting("data")
    return data


def reached(line: Line) -> list[int]:
    """Return the online steps of each run so far."""
    return [run.rows[-1]["online_steps"] for run in line.runs]


def recent(line: Line) -> list[list[float]]:
    """Return, of each run, the returns of its newest training episodes."""
    ended = ([e[1] for row in run.rows for e in row.get("episodes", ())] for run in line.runs)
    return [returns[-RECENT_EPISODES:] for returns in ended if returns]


def evaluations(line: Line) -> list[float]:
    """Return the newest evaluation of each run that has one."""
    return [values[-1] for run in line.runs if (values := run.points("eval_return")[1])]


def speed(line: Line) -> float | None:
    """Return online steps a second of training, evaluations left out."""
    rows = [row for run in line.runs for row in run.rows if row["online_steps"]]
    seconds = sum(sum(row["seconds"].values()) for row in rows)
    return sum(reached(line)) / seconds if rows and seconds else None


def cells(line: Line, video: Video | None) -> dict[str, str]:
    """Return a row of the table, by the names of its columns."""
    means = [float(np.mean(returns)) for returns in recent(line)]
    ended = [total for returns in recent(line) for total in returns]
    shown = ended or ([one.total for one in video.episodes] if video else [])
    good = f"{np.mean(np.array(shown) >= GOOD_RETURN):.0%}" if shown else "-"
    taken = sorted({f"{min(reached(line)) / 1e6:g}", f"{max(reached(line)) / 1e6:g}"}, key=float)
    found = evaluations(line)
    return {
        "algorithm": line.label,
        "data": line.panel.rpartition("/")[2],
        "ended": f"{len(line.finished)}/{len(line.runs)}",
        "steps": "-" if is_offline(line.algorithm) else f"{'-'.join(taken)}M",
        f"last {RECENT_EPISODES}": f"{np.median(means):,.0f}" if means else "-",
        "20-80%": _band(means).replace(" to ", "-"),
        f"≥ {GOOD_RETURN:,}": good + "*" * bool(shown and not ended),
        "eval.": number(float(np.median(found))) if found else "-",
        "video": number(None if video is None else video.facts.mean_return),
        "steps/s": number(speed(line)),
    }


def _band(values: Sequence[float]) -> str:
    if len(values) < FEWEST_FOR_BAND:
        return "-"
    return " to ".join(f"{edge:,.0f}" for edge in np.quantile(values, (0.2, 0.8)))


def conclusion(lines: list[Line], records: SuiteRecords) -> list[str]:
    """Compare what acts on the hardest data after as many steps, and say what that leaves out."""
    hardest = lines[0].panel
    here = [one for one in lines if one.panel in (hardest, NO_DATA)]
    acting = [one for one in here if max(reached(one)) and recent(one)]
    furthest = max((max(reached(one)) for one in acting), default=0)
    compared = [one for one in acting if max(reached(one)) >= furthest / 2]
    common = min((max(reached(one)) for one in compared), default=0)
    values = {one.label: _after(one, common) for one in compared}
    offline = {one.label: evaluations(one) for one in here if is_offline(one.algorithm)}
    parts = []
    if values:
        parts.append(
            f"With {hardest.rpartition('/')[2]} data, the last {RECENT_EPISODES} training episodes "
            f"after {common:,} online steps return (median): {_ranked(values)}."
        )
    if any(offline.values()):
        never = "Never acting, by evaluation" if parts else "By evaluation, never acting"
        parts.append(f"{never}: {_ranked(offline)}.")
    found = [" ".join(parts) or "Nothing can be compared yet."]
    top = _order(values)[:2]
    if len(top) == 2 and all(len(values[name]) >= FEWEST_FOR_BAND for name in top):
        low, high = np.quantile(values[top[0]], 0.2), np.quantile(values[top[1]], 0.8)
        if low <= high:
            found.append(f"The bands of {' and '.join(top)} overlap: their order may be chance.")
    behind = [one for one in acting if one not in compared]
    if names := [f"{one.label} ({max(reached(one)):,} steps)" for one in behind]:
        found.append(f"Not compared, because less than half way: {listed(names)}.")
    unseen = [name for name in DATA if all(one.panel != name for one in lines)]
    if missing := [*records.not_begun, *(name.rpartition("/")[2] for name in unseen)]:
        found.append(f"Nothing is recorded yet of {listed(missing)}.")
    return found


def _after(line: Line, steps: int) -> list[float]:
    """Return the recent return after so many steps of each run that has taken them."""
    runs = [run for run in line.runs if run.rows[-1]["online_steps"] >= steps]
    points = (run.points("recent_return") for run in runs)
    return [float(np.interp(steps, *found)) for found in points if found[0]]


def _order(values: Mapping[str, Sequence[float]]) -> list[str]:
    known = [name for name in values if values[name]]
    return sorted(known, key=lambda name: -np.median(values[name]))


def _ranked(values: Mapping[str, Sequence[float]]) -> str:
    """Name lines, the highest median first."""
    parts = []
    for name in _order(values):
        band = _band(values[name])
        seeds = seeds_said(len(values[name])) + f", {band}" * (band != "-")
        parts.append(f"{name} {np.median(values[name]):,.0f} ({seeds})")
    return "; ".join(parts)


def learning_panels(lines: list[Line], facts: Mapping[str, EpisodeFacts]) -> list[Panel]:
    """Draw the recent return against online steps, a panel a dataset (the paper's Figure 5)."""
    panels = []
    for data in [name for name in DATA if any(one.panel == name for one in lines)] or [*DATA][:1]:
        here = [one for one in lines if one.panel in (data, NO_DATA)]
        looks = [{"dashes": DASHED} if PUBLISHED in one.label else {} for one in here]
        found = [one.drawn(**look) for one, look in zip(here, looks, strict=True)]
        drawn = [made for made in found if made is not None]
        best = max((v for one in drawn if isinstance(one, Curve) for v in one.values), default=0.0)
        known = {"expert": facts.get("expert"), "data": facts.get(data)}
        marks = {name: one.mean_return for name, one in known.items() if one is not None}
        # Far above every curve, a mark would only press them down: it is said in words.
        drawn += [
            Level(value, f"{name}: {value:,.0f}", dashes=DOTTED, shown=value <= 2 * best)
            for name, value in marks.items()
        ]
        far = ", ".join(f"{name} {value:,.0f}" for name, value in marks.items() if value > 2 * best)
        panels.append(Panel(DATA[data][0], drawn, y_label=RECENT.label, note=far))
    return panels


def beside_rnd(lines: list[Line]) -> Panel:
    """Draw Hy-Q on each dataset and RND, which learns without one (the paper's Figure 1)."""
    drawn = []
    for one in lines:
        if one.algorithm in ("hyq", "rnd"):
            data = one.panel.replace("none", "no").rpartition("/")[2]
            _, color = DATA.get(one.panel, ("", algorithm_color(one.algorithm)))
            drawn.append(replace(one, label=f"{one.label}, {data} data").drawn(color=color))
    return line_panel("Hy-Q and RND", drawn, y_label=RECENT.label)


def report_montezuma(path: Path, console: Console) -> None:
    """Write the figures, the videos and the page from the records, finished or not."""
    records, facts = SuiteRecords.read(path), read_datasets(path)
    lines = read_lines(records)
    videos = [
        None if PUBLISHED in one.label else read_video(path, one.algorithm, _data(one))
        for one in lines
    ]
    recorded = [(one, made) for one, made in zip(lines, videos, strict=True) if made is not None]
    rnd = beside_rnd(lines)
    write_figure(draw_panels([rnd], size=(6.6, 4.4)), path / "rnd.png")
    maps = {
        "data": {f"data: {n.rpartition('/')[2]}": one for n, one in facts.items() if n in DATA},
        "policies": {video_title(video): video.facts for _, video in recorded},
    }
    rooms = []
    for name, shown in maps.items():
        if shown:
            write_figure(draw_rooms(shown), path / f"rooms-{name}.png")
        rooms += [Image.drawn(draw_rooms({title: one}), title) for title, one in shown.items()]
    clips = [_clip(path, *one) for one in recorded if one[0].panel in (lines[0].panel, NO_DATA)]
    sections = [
        Section("Hy-Q and RND", panels=[rnd], note=note("rnd")),
        Section("Rooms reached", images=rooms, note=note("rooms")),
    ]
    if clips:
        parts = [*(Section(images=clip) for clip in clips), Section(note=note("videos"))]
        sections.append(Section("Videos of learned policies", parts=parts))
    rows = [cells(line, video) for line, video in zip(lines, videos, strict=True)]
    title = records.manifest["title"]
    table = TextTable([*rows[0]], [[*row.values()] for row in rows], title, left=2)
    publish(
        records,
        learning_panels(lines, facts),
        table,
        console,
        conclusion(lines, records),
        sections,
        notes=(note("montezuma_figure"), note("montezuma_table", good=f"{GOOD_RETURN:,}")),
        share_y=True,
    )


def _clip(path: Path, line: Line, video: Video) -> list[Image]:
    """Return the clip and the strip of what was learned, drawn where they are missing."""
    place = video_place(path, line.algorithm, _data(line))
    if not (place / CLIP).exists():
        draw_video(video, place)
    alt = f"{line.label}'s best episode"
    return [
        Image.of(place / CLIP, alt, "clip"),
        Image.of(place / STRIP, f"Images of {alt}", "strip"),
    ]
