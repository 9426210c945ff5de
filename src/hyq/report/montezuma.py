"""The Montezuma comparison: learning curves, Hy-Q beside RND, maps of rooms, a table, a page."""

import base64
import html
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_bytes
from hyq.core.types import FloatArray
from hyq.report.figure import COLOURS
from hyq.report.film import CLIP, STRIP, draw_film, film_map
from hyq.report.page import failures_section, made_section
from hyq.report.rooms import RoomMap, draw_rooms
from hyq.report.runs import RunResult, write_figure
from hyq.report.suite import method_name
from hyq.runs.film import Film
from hyq.runs.montezuma_suite import (
    DATASETS,
    FILMS,
    DatasetFacts,
    film_name,
    read_datasets,
    read_film,
)
from hyq.runs.suites import OFFLINE_METHODS

METHODS = ("hyq", "dqfd", "rnd", "cql", "bc")
"""In the order of the table and the legend."""
DATA = ("montezuma/easy", "montezuma/medium", "montezuma/hard")
SHARES = {
    "montezuma/easy": "easy: all of the expert's",
    "montezuma/medium": "medium: 80 % of the expert's, 20 % random",
    "montezuma/hard": "hard: half of the expert's, half random",
}
HYQ_BY_DATA = {
    "montezuma/easy": "#7fb2c4",
    "montezuma/medium": "#1f6f8b",
    "montezuma/hard": "#0b3c4d",
}
RECENT = 100
"""Training episodes that the moving average is over."""
GOOD_RETURN = 2500
"""Points that take most of the expert's way: several rooms, and the largest rewards."""
GRID_POINTS = 300


@dataclass(frozen=True)
class Learned:
    """One method on one dataset: its replicates, and a film of one of them."""

    algorithm: str
    data: str | None
    """None where it learns without."""
    runs: tuple[RunResult, ...]
    film: Film | None

    @property
    def label(self) -> str:
        """Name of the method."""
        return method_name(self.algorithm)

    @property
    def is_offline(self) -> bool:
        """Whether the method never acts."""
        return self.algorithm in OFFLINE_METHODS

    def steps(self) -> int:
        """Return the online steps of the run that came furthest."""
        return max((run.rows[-1]["online_steps"] for run in self.runs if run.rows), default=0)

    def curve(self, grid: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the least, mean and largest recent return of the runs that came so far."""
        curves = []
        for run in self.runs:
            points = [
                (row["online_steps"], row["recent_return"])
                for row in run.rows
                if "recent_return" in row
            ]
            if points:
                steps, values = np.array(points, dtype=float).T
                curves.append(np.interp(grid, steps, values, left=np.nan, right=np.nan))
        known = np.stack(curves) if curves else np.full((1, len(grid)), np.nan)
        somewhere = np.isfinite(known).any(axis=0)
        low, mean, high = (np.full(len(grid), np.nan) for _ in range(3))
        low[somewhere] = np.nanmin(known[:, somewhere], axis=0)
        mean[somewhere] = np.nanmean(known[:, somewhere], axis=0)
        high[somewhere] = np.nanmax(known[:, somewhere], axis=0)
        return low, mean, high

    def recent(self) -> list[list[float]]:
        """Return, of each run, the returns of its newest training episodes."""
        ended = (
            [float(total) for row in run.rows for _, total, _ in row.get("episodes", ())][-RECENT:]
            for run in self.runs
        )
        return [returns for returns in ended if returns]

    def evaluated(self) -> float | None:
        """Return the newest evaluation, averaged over the runs; None before the first."""
        newest = [
            [row["eval_return"] for row in run.rows if "eval_return" in row] for run in self.runs
        ]
        last = [values[-1] for values in newest if values]
        return float(np.mean(last)) if last else None

    def good_share(self) -> float | None:
        """Return the share of good episodes: the newest of the training, else those filmed."""
        recent = self.recent()
        if recent:
            return float(np.mean([total >= GOOD_RETURN for run in recent for total in run]))
        if self.film is not None:
            return float(np.mean([take.total >= GOOD_RETURN for take in self.film.takes]))
        return None

    def speed(self) -> float | None:
        """Return online steps a second of training, evaluations left out."""
        seconds = sum(
            sum(row["seconds"].values())
            for run in self.runs
            for row in run.rows
            if row["online_steps"]
        )
        steps = sum(run.rows[-1]["online_steps"] for run in self.runs if run.rows)
        return steps / seconds if steps and seconds else None


@dataclass(frozen=True)
class MontezumaResult:
    """The suite's records."""

    path: Path
    manifest: dict[str, Any]
    learned: tuple[Learned, ...]
    datasets: dict[str, DatasetFacts]
    """By name, and the expert's; empty before they were looked at."""
    failures: dict[str, str]
    missing: int

    @classmethod
    def read(cls, path: Path) -> "MontezumaResult":
        """Read whatever has been recorded so far, of finished runs and of those under way."""
        manifest = read_json(path / "suite.json")
        runs = [
            RunResult.read(path / "runs" / name)
            for name in manifest["runs"]
            if (path / "runs" / name / "manifest.json").exists()
        ]
        runs = [run for run in runs if run.rows]
        if not runs:
            raise HyqError(f"{path} has no records to report yet")
        groups: dict[tuple[str, str | None], list[RunResult]] = {}
        for run in runs:
            groups.setdefault((run.spec["algorithm"], run.spec.get("data")), []).append(run)
        learned = [
            Learned(method, data, tuple(members), read_film(path, method, data))
            for (method, data), members in groups.items()
        ]
        learned.sort(key=lambda one: (_hardest_first(one), _rank(one)))
        failures = {p.stem: p.read_text() for p in sorted((path / "failures").glob("*.txt"))}
        finished = sum(run.summary is not None for run in runs)
        return cls(
            path,
            manifest,
            tuple(learned),
            read_datasets(path) if (path / DATASETS).exists() else {},
            failures,
            len(manifest["runs"]) - finished - len(failures),
        )

    @property
    def grid(self) -> FloatArray:
        """Online steps to read the curves at."""
        return np.linspace(0, max(one.steps() for one in self.learned) or 1, GRID_POINTS)

    def on(self, data: str) -> list[Learned]:
        """Return what learned from a dataset, and what learns without any."""
        return sorted((one for one in self.learned if one.data in (data, None)), key=_rank)

    @property
    def panels(self) -> list[str]:
        """The datasets that something was learned from; all of them before anything was."""
        return [d for d in DATA if any(one.data == d for one in self.learned)] or list(DATA)


def _rank(one: Learned) -> int:
    return METHODS.index(one.algorithm)


def _hardest_first(one: Learned) -> int:
    return len(DATA) if one.data is None else -DATA.index(one.data)


def report_montezuma(path: Path, console: Console) -> None:
    """Write the figures, the films' pictures and the page from the records, finished or not."""
    result = MontezumaResult.read(path)
    for figure, name in ((learning_curves(result), "figure"), (beside_rnd(result), "rnd")):
        for suffix in (".png", ".svg"):
            write_figure(figure, path / f"{name}{suffix}")
    _draw_films(result)
    write_montezuma_page(result, path / "report.html")
    console.print(montezuma_table(result))
    console.print(f"figures: {path / 'figure.png'}, rnd.png   page: {path / 'report.html'}")


def learning_curves(result: MontezumaResult) -> Figure:
    """Draw the recent return against online steps, a panel a dataset (the paper's Figure 5)."""
    panels = result.panels
    figure = Figure(figsize=(4.6 * len(panels), 4.3), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, data in zip(all_axes, panels, strict=True):
        for one in result.on(data):
            colour = COLOURS[one.algorithm]
            if one.is_offline:
                level = one.evaluated()
                if level is not None:
                    axes.axhline(level, color=colour, linestyle="--", linewidth=1.6, zorder=2)
                    axes.plot([], [], color=colour, linestyle="--", label=one.label)
            else:
                _draw_curve(axes, one, result.grid, colour, one.label)
        _draw_levels(axes, result, data)
        axes.set_title(SHARES[data], loc="left", fontsize=10.5)
        _tidy(axes, result)
    all_axes[0].set_ylabel(f"return of the last {RECENT} training episodes")
    handles = {
        label: handle
        for axes in all_axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=7, frameon=False, fontsize=9.5
    )
    return figure


def beside_rnd(result: MontezumaResult) -> Figure:
    """Draw Hy-Q on each dataset and RND, which learns without one (the paper's Figure 1)."""
    figure = Figure(figsize=(6.6, 4.3), layout="constrained")
    axes = figure.add_subplot()
    for one in result.learned:
        if one.algorithm == "hyq" and one.data is not None:
            name = one.data.rpartition("/")[2]
            _draw_curve(axes, one, result.grid, HYQ_BY_DATA[one.data], f"Hy-Q, {name} data")
        elif one.algorithm == "rnd":
            _draw_curve(axes, one, result.grid, COLOURS["rnd"], "RND, no data")
    _draw_levels(axes, result, None)
    axes.set_ylabel(f"return of the last {RECENT} training episodes")
    _tidy(axes, result)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88), frameon=False, fontsize=9.5)
    return figure


def _draw_curve(axes: Axes, one: Learned, grid: FloatArray, colour: str, label: str) -> None:
    low, mean, high = one.curve(grid)
    axes.plot(grid, mean, color=colour, linewidth=2, label=label, zorder=4)
    if len(one.runs) > 1:
        axes.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0, zorder=3)


def _draw_levels(axes: Axes, result: MontezumaResult, data: str | None) -> None:
    """Mark what the expert earns, and what the episodes of the data earn on average."""
    levels = {"expert": ("expert", 4)}
    if data is not None:
        levels[data] = ("data", -4)
    for name, (text, above) in levels.items():
        if name in result.datasets:
            value = result.datasets[name].mean_return
            axes.axhline(value, color="#777777", linestyle=(0, (1.5, 2)), linewidth=1.3, zorder=1)
            # On the left, where no curve has risen yet.
            axes.annotate(
                f"{text}: {value:,.0f}",
                (0.015, value),
                xycoords=axes.get_yaxis_transform(),
                xytext=(0, above),
                textcoords="offset points",
                va="bottom" if above > 0 else "top",
                fontsize=8.5,
                color="#555555",
            )


def _tidy(axes: Axes, result: MontezumaResult) -> None:
    axes.set_xlim(0, result.grid[-1])
    top = max((facts.mean_return for facts in result.datasets.values()), default=0.0)
    seen = [float(np.nanmax(one.curve(result.grid)[2], initial=0.0)) for one in result.learned]
    axes.set_ylim(0, 1.1 * max([top, *seen, 1.0]))
    axes.set_xlabel("online steps")
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value else "0"


def _draw_films(result: MontezumaResult) -> None:
    """Draw the maps of rooms, and the strips and clips of what learned on the hardest data."""
    maps = [
        RoomMap(
            f"data: {name.rpartition('/')[2]}",
            facts.room_shares,
            f"{facts.episodes} episodes, {facts.mean_return:,.0f} points on average",
        )
        for name, facts in result.datasets.items()
        if name in DATA
    ]
    if maps:
        draw_rooms(maps, result.path / "rooms-data.png")
    filmed = [(one, one.film) for one in result.learned if one.film is not None]
    if filmed:
        draw_rooms([film_map(film) for _, film in filmed], result.path / "rooms-policies.png")
    for one, film in filmed:
        place = result.path / FILMS / film_name(one.algorithm, one.data)
        if _is_shown(one) and not (place / CLIP).exists():
            draw_film(film, place)


def _is_shown(one: Learned) -> bool:
    return one.data in (DATA[-1], None)


COLUMNS = (
    "algorithm",
    "data",
    "steps",
    "runs",
    f"last {RECENT}",
    "worst-best",
    f"≥ {GOOD_RETURN:,}",
    "eval.",
    "filmed",
    "steps/s",
)


def table_rows(result: MontezumaResult) -> list[tuple[str, ...]]:
    """Lay out one row a method and dataset."""
    return [_cells(one) for one in result.learned]


def _cells(one: Learned) -> tuple[str, ...]:
    recent = [float(np.mean(returns)) for returns in one.recent()]
    share, evaluated, speed = one.good_share(), one.evaluated(), one.speed()
    mark = "" if recent or share is None else "*"
    return (
        one.label,
        "none" if one.data is None else one.data.rpartition("/")[2],
        "-" if one.is_offline else _short(one.steps()),
        str(len(one.runs)),
        f"{np.mean(recent):,.0f}" if recent else "-",
        f"{min(recent):,.0f}-{max(recent):,.0f}" if len(recent) > 1 else "-",
        "-" if share is None else f"{share:.0%}{mark}",
        "-" if evaluated is None else f"{evaluated:,.0f}",
        "-" if one.film is None else f"{one.film.mean_return:,.0f}",
        "-" if speed is None else f"{speed:,.0f}",
    )


def montezuma_table(result: MontezumaResult) -> Table:
    """Lay the table out for a terminal."""
    title = result.manifest["title"]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 0, 0, 1))
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for row in table_rows(result):
        table.add_row(*row)
    return table


def write_montezuma_page(result: MontezumaResult, path: Path) -> None:
    """Write the page; it needs no network and no other file."""
    template = (files("hyq.report") / "montezuma.html").read_text()
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table_rows(result)
    )
    parts = {
        "TITLE": html.escape(result.manifest["title"]),
        "SUMMARY": _summary(result),
        "CURVES": _embedded(result.path / "figure.svg", "Learning curves on the three datasets"),
        "RND": _embedded(result.path / "rnd.svg", "Hy-Q and RND against online steps"),
        "TABLE": f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>",
        "ROOMS": _embedded(result.path / "rooms-data.png", "Rooms that the datasets visit")
        + _embedded(result.path / "rooms-policies.png", "Rooms that learned policies visit"),
        "FILMS": "".join(_film_section(result, one) for one in result.learned if _is_shown(one)),
        "FAILURES": failures_section(result.failures),
        "MADE": made_section(result.manifest),
    }
    for name, content in parts.items():
        template = template.replace(f"{{{{{name}}}}}", content)
    write_bytes(path, template.encode())


def _summary(result: MontezumaResult) -> str:
    text = f"{len(result.manifest['runs'])} runs."
    if result.missing:
        text += f" {result.missing} of them are under way or still to come."
    if result.failures:
        text += f" <b>{len(result.failures)} runs failed</b>: see below."
    return f"<p>{text}</p>"


def _film_section(result: MontezumaResult, one: Learned) -> str:
    place = result.path / FILMS / film_name(one.algorithm, one.data)
    strip = _embedded(place / STRIP, f"Pictures of {one.label}'s best filmed episode")
    clip = _embedded(place / CLIP, f"{one.label}'s best filmed episode")
    return f'<div class="film">{clip}{strip}</div>' if strip else ""


def _embedded(path: Path, description: str) -> str:
    """Return a picture as a part of the page; nothing where there is none."""
    if not path.exists():
        return ""
    kinds = {".png": "image/png", ".svg": "image/svg+xml", ".gif": "image/gif"}
    content = base64.b64encode(path.read_bytes()).decode()
    source = f"data:{kinds[path.suffix]};base64,{content}"
    return f'<img class="{path.stem}" alt="{html.escape(description)}" src="{source}">'
