"""The Montezuma comparison: learning curves, Hy-Q beside RND, maps of rooms, a table, a page."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from hyq.core.types import FloatArray
from hyq.report.curves import GRID_POINTS, Curve, Level, Panel, aggregate, draw_curves, write_figure
from hyq.report.html import image_file, publish
from hyq.report.records import (
    RunResult,
    SuiteRecords,
    algorithm_color,
    algorithm_name,
    grouped,
    is_offline,
)
from hyq.report.tables import TextTable, number
from hyq.report.video import CLIP, STRIP, draw_rooms, draw_video, video_title
from hyq.runs.montezuma_suite import (
    DATASETS,
    read_datasets,
    read_video,
    video_place,
)
from hyq.runs.video import EpisodeFacts, Video

ALGORITHMS = ("hyq", "dqfd", "rnd", "cql", "bc")
"""In the order of the table and the legend."""
DATA = {
    "montezuma/easy": ("easy: all of the expert's", "#7fb2c4"),
    "montezuma/medium": ("medium: 80 % of the expert's, 20 % random", "#1f6f8b"),
    "montezuma/hard": ("hard: half of the expert's, half random", "#0b3c4d"),
}
"""What each dataset is made of, and the colour of Hy-Q on it."""
HARDEST = list(DATA)[-1]
RECENT = 100
"""Training episodes that the moving average is over."""
Y_LABEL = f"return of the last {RECENT} training episodes"
FROM_ZERO = (0.0, None)
GOOD_RETURN = 2500
"""Points that take most of the expert's way: several rooms, and the largest rewards."""


@dataclass(frozen=True)
class Learned:
    """One algorithm on one dataset: its seeds, and a video of one of them."""

    algorithm: str
    data: str | None
    """None where it learns without."""
    runs: tuple[RunResult, ...]
    video: Video | None

    @property
    def label(self) -> str:
        """Name of the algorithm."""
        return algorithm_name(self.algorithm)

    @property
    def data_name(self) -> str:
        """Short name of the dataset."""
        return "none" if self.data is None else self.data.rpartition("/")[2]

    def steps(self) -> int:
        """Return the online steps of the run that came furthest."""
        return max((run.rows[-1]["online_steps"] for run in self.runs if run.rows), default=0)

    def curve(self, grid: FloatArray, label: str, color: str) -> Curve:
        """Return the recent return, averaged over the runs that came so far."""
        low, mean, high = aggregate(self.runs, grid, "recent_return", "mean", "linear")
        return Curve(label, grid, mean, low, high, color, seeds=len(self.runs))

    def recent(self) -> list[list[float]]:
        """Return, of each run, the returns of its newest training episodes."""
        ended = ([e[1] for row in run.rows for e in row.get("episodes", ())] for run in self.runs)
        return [returns[-RECENT:] for returns in ended if returns]

    def evaluated(self) -> float | None:
        """Return the newest evaluation, averaged over the runs; None before the first."""
        last = [values[-1] for run in self.runs if (values := run.points("eval_return")[1])]
        return float(np.mean(last)) if last else None

    def score(self) -> float:
        """Return what the algorithm reached: the mean of its last episodes, or its evaluation."""
        recent = [np.mean(returns) for returns in self.recent()]
        return float(np.mean(recent)) if recent else self.evaluated() or 0.0

    def good_share(self) -> float | None:
        """Return the share of good episodes: of the last in training, else those of the video."""
        if recent := self.recent():
            return float(np.mean([total >= GOOD_RETURN for run in recent for total in run]))
        if self.video is not None:
            return float(np.mean([one.total >= GOOD_RETURN for one in self.video.episodes]))
        return None

    def speed(self) -> float | None:
        """Return online steps a second of training, evaluations left out."""
        rows = [row for run in self.runs for row in run.rows if row["online_steps"]]
        seconds = sum(sum(row["seconds"].values()) for row in rows)
        steps = sum(run.rows[-1]["online_steps"] for run in self.runs if run.rows)
        return steps / seconds if steps and seconds else None

    def cells(self) -> dict[str, str]:
        """Return a row of the table, by the names of its columns."""
        recent = [float(np.mean(returns)) for returns in self.recent()]
        share = self.good_share()
        mark = "" if recent or share is None else "*"
        return {
            "algorithm": self.label,
            "data": self.data_name,
            "steps": "-" if is_offline(self.algorithm) else f"{self.steps() / 1e6:g}M",
            "runs": str(len(self.runs)),
            f"last {RECENT}": f"{np.mean(recent):,.0f}" if recent else "-",
            "worst-best": f"{min(recent):,.0f}-{max(recent):,.0f}" if len(recent) > 1 else "-",
            f"≥ {GOOD_RETURN:,}": "-" if share is None else f"{share:.0%}{mark}",
            "eval.": number(self.evaluated()),
            "video": number(None if self.video is None else self.video.facts.mean_return),
            "steps/s": number(self.speed()),
        }


@dataclass(frozen=True)
class MontezumaResult:
    """The suite's records."""

    records: SuiteRecords
    learned: tuple[Learned, ...]
    """The hardest data first, and what learns without data last."""
    datasets: dict[str, EpisodeFacts]
    """By name, and the expert's; empty before they were made."""

    @classmethod
    def read(cls, path: Path) -> "MontezumaResult":
        """Read whatever has been recorded so far, of finished runs and of those under way."""
        records = SuiteRecords.read(path)
        begun = [run for run in records.runs if run.rows]
        groups = grouped(begun, lambda run: (run.setting("algorithm"), run.setting("data")))
        learned = tuple(
            Learned(*key, tuple(groups[key]), read_video(path, *key))
            for data, algorithm in product([*reversed(DATA), None], ALGORITHMS)
            if (key := (algorithm, data)) in groups
        )
        return cls(records, learned, read_datasets(path) if (path / DATASETS).exists() else {})

    @property
    def grid(self) -> FloatArray:
        """Online steps to read the curves at."""
        return np.linspace(0, max(one.steps() for one in self.learned) or 1, GRID_POINTS)

    def levels(self, *names: str) -> list[Level]:
        """Mark what the expert earns, and what the episodes of a dataset earn on average."""
        levels = []
        for name in names:
            if (facts := self.datasets.get(name)) is not None:
                expert, value = name == "expert", facts.mean_return
                note = f"{'expert' if expert else 'data'}: {value:,.0f}"
                levels.append(Level(value, note=note, style=":", note_below=not expert))
        return levels

    def conclusion(self) -> str:
        """Say who is best on the hardest data that was learned from, and beside what."""
        first = self.learned[0]
        beside = [one for one in self.learned if one.data in (first.data, None)]
        ranked = sorted(beside, key=Learned.score, reverse=True)
        scores = ", ".join(f"{one.label} {one.score():,.0f}" for one in ranked)
        return f"Returns with {first.data_name} data, the highest first: {scores}."


def learning_curves(result: MontezumaResult) -> Figure:
    """Draw the recent return against online steps, a panel a dataset (the paper's Figure 5)."""
    used = [data for data in DATA if any(one.data == data for one in result.learned)]
    panels: list[Panel] = []
    grid = result.grid
    for data in used or DATA:
        curves, levels = [], []
        for one in sorted(result.learned, key=lambda one: ALGORITHMS.index(one.algorithm)):
            if one.data not in (data, None):
                continue
            color = algorithm_color(one.algorithm)
            if not is_offline(one.algorithm):
                curves.append(one.curve(grid, one.label, color))
            elif (value := one.evaluated()) is not None:
                levels.append(Level(value, one.label, color=color))
        levels += result.levels("expert", data)
        y_label = "" if panels else Y_LABEL
        panels.append(Panel(DATA[data][0], curves, levels, y_label=y_label, y_range=FROM_ZERO))
    return draw_curves(panels, size=(4.6, 4.3))


def beside_rnd(result: MontezumaResult) -> Figure:
    """Draw Hy-Q on each dataset and RND, which learns without one (the paper's Figure 1)."""
    curves, grid = [], result.grid
    for one in result.learned:
        if one.algorithm == "hyq" and one.data is not None:
            curves.append(one.curve(grid, f"Hy-Q, {one.data_name} data", DATA[one.data][1]))
        elif one.algorithm == "rnd":
            curves.append(one.curve(grid, "RND, no data", algorithm_color("rnd")))
    panel = Panel("", curves, result.levels("expert"), y_label=Y_LABEL, y_range=FROM_ZERO)
    return draw_curves([panel], size=(6.6, 4.6))


def montezuma_table(result: MontezumaResult) -> TextTable:
    """Lay out a row an algorithm and dataset."""
    rows = [one.cells() for one in result.learned]
    cells = [list(row.values()) for row in rows]
    return TextTable(list(rows[0]), cells, result.records.manifest["title"], left=2)


def report_montezuma(path: Path, console: Console) -> None:
    """Write the figures, the videos and the page from the records, finished or not."""
    result = MontezumaResult.read(path)
    curves = learning_curves(result)
    write_figure(curves, path / "figure.svg")
    for suffix in (".png", ".svg"):
        write_figure(beside_rnd(result), path / f"rnd{suffix}")
    videos = _draw_videos(result)
    rooms = {"data": "Rooms that the datasets visit", "policies": "Rooms that policies visit"}
    publish(
        result.records,
        curves,
        montezuma_table(result),
        console,
        result.conclusion(),
        "montezuma.html",
        curves=image_file(path / "figure.svg", "Learning curves on the datasets"),
        rnd=image_file(path / "rnd.svg", "Hy-Q and RND against online steps", kind=""),
        rooms=[image_file(path / f"rooms-{k}.png", alt) for k, alt in rooms.items()],
        videos=videos,
    )


def _draw_videos(result: MontezumaResult) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Draw the maps of rooms; return the clips and strips of what learned on the hardest data."""
    path, shown = result.records.path, []
    datasets = [
        (name.rpartition("/")[2], one) for name, one in result.datasets.items() if name in DATA
    ]
    maps = {f"data: {name}": one for name, one in datasets}
    if maps:
        write_figure(draw_rooms(maps), path / "rooms-data.png")
    recorded = [(one, one.video) for one in result.learned if one.video is not None]
    if recorded:
        figure = draw_rooms({video_title(video): video.facts for _, video in recorded})
        write_figure(figure, path / "rooms-policies.png")
    for one, video in recorded:
        if one.data in (HARDEST, None):
            place = video_place(path, one.algorithm, one.data)
            if not (place / CLIP).exists():
                draw_video(video, place)
            alt = f"{one.label}'s best episode"
            strip = image_file(place / STRIP, f"Images of {alt}", kind="strip")
            shown.append((image_file(place / CLIP, alt, kind="clip"), strip))
    return shown
