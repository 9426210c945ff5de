"""The Montezuma comparison: learning curves, Hy-Q beside RND, maps of rooms, a table, a page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from hyq.report.figures import (
    DOTTED,
    FEWEST_FOR_BAND,
    Curve,
    Level,
    Panel,
    level,
    run_points,
    summed,
)
from hyq.report.html import Image, Section, note, publish
from hyq.report.plot import draw_panels, write_figure
from hyq.report.records import (
    SuiteRecords,
    algorithm_color,
    algorithm_name,
    differences,
    grouped,
    in_words,
    is_offline,
)
from hyq.report.suite import Line, listed
from hyq.report.tables import TextTable, number
from hyq.report.video import CLIP, STRIP, draw_rooms, draw_video, video_title
from hyq.runs.montezuma_suite import read_datasets, read_video, video_place
from hyq.runs.video import EpisodeFacts, Video

ALGORITHMS = ("hyq", "hyq+cql", "dqfd", "rnd", "cql", "bc")
"""In the order of the table and the legend."""
DATA = {
    "montezuma/hard": ("hard: half of the expert's, half random", "#0b3c4d"),
    "montezuma/medium": ("medium: 80 % of the expert's, 20 % random", "#1f6f8b"),
    "montezuma/easy": ("easy: all of the expert's", "#7fb2c4"),
}
"""What each dataset is made of, the hardest first, and the colour of Hy-Q on it."""
NO_DATA = "none"
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
    order = [(data, name) for data in (*DATA, NO_DATA) for name in ALGORITHMS]
    return [
        Line(algorithm_name(key[1]), *key, True, tuple(groups[key]))
        for key in order
        if key in groups
    ]


def reached(line: Line) -> list[int]:
    """Return the online steps of each run so far."""
    return [run.rows[-1]["online_steps"] for run in line.runs]


def recent(line: Line) -> list[list[float]]:
    """Return, of each run, the returns of its newest training episodes."""
    ended = ([e[1] for row in run.rows for e in row.get("episodes", ())] for run in line.runs)
    return [returns[-RECENT:] for returns in ended if returns]


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
        f"last {RECENT}": f"{np.median(means):,.0f}" if means else "-",
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
    values = {}
    for one in compared:
        points = (
            run.points("recent_return")
            for run in one.runs
            if run.rows[-1]["online_steps"] >= common
        )
        values[one.label] = [float(np.interp(common, *found)) for found in points if found[0]]
    said, ranked = "", sorted(values, key=lambda name: -np.median(values[name]))
    if ranked:
        said = f"With {hardest.rpartition('/')[2]} data, the last {RECENT} training episodes after "
        said += f"{common:,} online steps return (median): "
        said += "; ".join(_said(name, values[name]) for name in ranked)
    offline = {
        one.label: evaluations(one)
        for one in here
        if evaluations(one) and is_offline(one.algorithm)
    }
    if offline:
        by = sorted(offline, key=lambda name: -np.median(offline[name]))
        said += ". Never acting, by evaluation: " * bool(said) or "By evaluation, never acting: "
        said += "; ".join(_said(name, offline[name]) for name in by)
    found = [f"{said}."] if said else ["Nothing can be compared yet."]
    if len(ranked) > 1 and all(len(values[name]) >= FEWEST_FOR_BAND for name in ranked[:2]):
        first, second = (np.quantile(values[name], (0.2, 0.8)) for name in ranked[:2])
        if first[0] <= second[1]:
            found.append(
                f"The bands of {ranked[0]} and {ranked[1]} overlap: their order may be chance."
            )
    if behind := [
        f"{one.label} ({max(reached(one)):,} steps)" for one in acting if one not in compared
    ]:
        found.append(f"Not compared, because less than half way: {listed(behind)}.")
    missing = [
        *records.not_begun,
        *(name.rpartition("/")[2] for name in DATA if all(one.panel != name for one in lines)),
    ]
    if missing:
        found.append(f"Nothing is recorded yet of {listed(missing)}.")
    return found


def _said(name: str, values: Sequence[float]) -> str:
    seeds = f"{len(values)} seed{'s' * (len(values) > 1)}"
    band = f", {_band(values)}" if len(values) >= FEWEST_FOR_BAND else ""
    return f"{name} {np.median(values):,.0f} ({seeds}{band})"


def _curve(line: Line, label: str = "", color: str = "") -> Curve:
    points = (run_points(run, "recent_return") for run in line.runs)
    color = color or algorithm_color(line.algorithm)
    return replace(summed(label or line.label, points, color=color), marker="")


def learning_panels(lines: list[Line], facts: Mapping[str, EpisodeFacts]) -> list[Panel]:
    """Draw the recent return against online steps, a panel a dataset (the paper's Figure 5)."""
    panels = []
    for data in [name for name in DATA if any(one.panel == name for one in lines)] or [*DATA][:1]:
        here = [one for one in lines if one.panel in (data, NO_DATA)]
        here.sort(key=lambda line: ALGORITHMS.index(line.algorithm))
        curves = [_curve(one) for one in here if not is_offline(one.algorithm)]
        levels = [
            level(one.label, found, color=algorithm_color(one.algorithm))
            for one in here
            if is_offline(one.algorithm) and (found := evaluations(one))
        ]
        best = max((value for one in curves for value in one.values), default=0.0)
        known = {"expert": facts.get("expert"), "data": facts.get(data)}
        marks = {name: one.mean_return for name, one in known.items() if one is not None}
        # Far above every curve, a mark would only press them down: it is said in words.
        levels += [
            Level(value, f"{name}: {value:,.0f}", dashes=DOTTED, shown=value <= 2 * best)
            for name, value in marks.items()
        ]
        far = ", ".join(f"{name} {value:,.0f}" for name, value in marks.items() if value > 2 * best)
        panels.append(Panel(DATA[data][0], curves, levels, y_label=Y_LABEL, note=far))
    return panels


def beside_rnd(lines: list[Line]) -> Panel:
    """Draw Hy-Q on each dataset and RND, which learns without one (the paper's Figure 1)."""
    curves = [
        _curve(
            one,
            f"{one.label}, {one.panel.replace('none', 'no').rpartition('/')[2]} data",
            DATA[one.panel][1] if one.panel in DATA else "",
        )
        for one in lines
        if one.algorithm in ("hyq", "rnd")
    ]
    return Panel("Hy-Q and RND", curves, y_label=Y_LABEL)


def report_montezuma(path: Path, console: Console) -> None:
    """Write the figures, the videos and the page from the records, finished or not."""
    records, facts = SuiteRecords.read(path), read_datasets(path)
    lines = read_lines(records)
    videos = [read_video(path, one.algorithm, one.runs[0].setting("data")) for one in lines]
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
        Section(
            "Hy-Q and RND",
            panels=[rnd],
            note=note("rnd"),
        ),
        Section("Rooms reached", images=rooms, note=note("rooms")),
    ]
    if clips:
        shown_clips = [Section(images=clip) for clip in clips]
        sections.append(
            Section(
                "Videos of learned policies", parts=[*shown_clips, Section(note=note("videos"))]
            )
        )
    rows = [cells(line, video) for line, video in zip(lines, videos, strict=True)]
    table = TextTable(
        [*rows[0]], [[*row.values()] for row in rows], records.manifest["title"], left=2
    )
    panels, said = learning_panels(lines, facts), conclusion(lines, records)
    publish(
        records,
        panels,
        table,
        console,
        said,
        sections,
        notes=(note("montezuma_figure"), note("montezuma_table", good=f"{GOOD_RETURN:,}")),
        share_y=True,
    )


def _clip(path: Path, line: Line, video: Video) -> list[Image]:
    """Return the clip and the strip of what was learned, drawn where they are missing."""
    place = video_place(path, line.algorithm, line.runs[0].setting("data"))
    if not (place / CLIP).exists():
        draw_video(video, place)
    alt = f"{line.label}'s best episode"
    return [
        Image.of(place / CLIP, alt, "clip"),
        Image.of(place / STRIP, f"Images of {alt}", "strip"),
    ]


def report_tuning(path: Path, console: Console) -> None:
    """Compare the trials of each algorithm, one seed each, by what chooses between them."""
    records, panels, rows, best = SuiteRecords.read(path), [], [], []
    begun = [run for run in records.runs if run.rows]
    for algorithm, runs in grouped(begun, lambda run: str(run.setting("algorithm"))).items():
        changed = dict.fromkeys(name for change in differences(runs) for name in change)
        column = "eval_return" if is_offline(algorithm) else "recent_return"
        x, curves, scores = "updates" if is_offline(algorithm) else "online_steps", [], {}
        for index, run in enumerate(runs):
            label = (
                in_words({name: json.dumps(run.setting(name)) for name in changed}) or "the preset"
            )
            curves.append(
                summed(label, [run_points(run, column, x)], color=f"#{COLORS[index % 4]}")
            )
            if (found := run.points(column, x))[0]:
                scores[label] = found[1][-1]
            ended = "ended" if run.summary is not None else "under way"
            rows.append(
                (
                    algorithm_name(algorithm),
                    label,
                    f"{run.rows[-1][x]:,}",
                    number(scores.get(label)),
                    ended,
                )
            )
        if scores:
            chosen = max(scores, key=lambda label: scores[label])
            best.append(f"{algorithm_name(algorithm)}: {chosen} ({number(scores[chosen])})")
        panels.append(
            Panel(
                algorithm_name(algorithm),
                curves,
                x_label=x.replace("_", " "),
                y_label=COLUMN_LABELS[column],
            )
        )
    said = [
        f"Best of the trials so far, {'; '.join(best)}." if best else "No trial has a return yet.",
        "One seed each: neighbours may be level.",
    ]
    table = TextTable(
        ("algorithm", "settings", "steps or updates", "return", "state"),
        rows,
        records.manifest["title"],
        left=2,
    )
    publish(records, panels, table, console, said, share_y=True)


COLORS = ("1f6f8b", "d1495b", "e09f3e", "6a994e")
COLUMN_LABELS = {"eval_return": "return of the evaluation", "recent_return": Y_LABEL}
