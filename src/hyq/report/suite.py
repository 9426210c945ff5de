"""What a suite says: its runs grouped into methods, and each method summed up honestly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.core.types import FloatArray
from hyq.report.runs import RunResult
from hyq.report.stats import (
    SamplesToSolve,
    interquartile_mean,
    quantile_band,
    step_curve,
    stratified_bootstrap,
)
from hyq.runs.suites import OFFLINE_METHODS

LABELS = {
    "hyq": "Hy-Q",
    "bc": "BC",
    "cql": "CQL (peak)",
    "offline-fqi": "FQI, offline only",
    "online-only": "Hy-Q, online only",
    "warm-start": "warm start, then online",
    "dqfd": "DQfD",
    "briee": "BRIEE",
    "dqn": "DQN, online only",
    "offline": "Q-learning, offline only",
    "iql": "IQL",
    "rnd": "RND",
}
"""What the methods are called, and how they are judged where that differs."""
PEAK_METHODS = ("cql",)
"""Methods judged by the best point of their curve, as the paper judges CQL."""
FEWEST_FOR_INTERVAL = 3
"""Replicates below which resampling them says nothing about how far others would differ."""
GRID_POINTS = 200


def method_name(algorithm: str) -> str:
    """Name a method, without saying how it is judged."""
    return LABELS.get(algorithm, algorithm).removesuffix(" (peak)")


@dataclass(frozen=True)
class Line:
    """The replicates of one method in one setting."""

    label: str
    panel: str
    algorithm: str
    is_main: bool
    """One of the paper's methods in the paper's setting, rather than an ablation."""
    runs: tuple[RunResult, ...]

    @property
    def is_offline(self) -> bool:
        """Whether the method never acts, and so has no curve."""
        return self.algorithm in OFFLINE_METHODS

    @property
    def finished(self) -> list[dict[str, Any]]:
        """The summaries of the replicates that ended."""
        return [run.summary for run in self.runs if run.summary is not None]

    @property
    def returns(self) -> list[float]:
        """One return a replicate: the last, or the peak where that is the custom."""
        key = "peak_return" if self.algorithm in PEAK_METHODS else "eval_return"
        return [summary[key] for summary in self.finished]

    @property
    def samples_to_solve(self) -> SamplesToSolve:
        """Online samples until solved."""
        return SamplesToSolve.of(
            [
                summary["online_steps"]
                if summary.get("solved_at") is None
                else summary["solved_at"]
                for summary in self.finished
            ],
            [summary["solved"] for summary in self.finished],
        )

    @property
    def seconds(self) -> float:
        """Median wall time of a replicate."""
        return float(np.median([summary["wall_seconds"] for summary in self.finished]))

    @property
    def mean(self) -> float:
        """The IQM of the returns."""
        return interquartile_mean(np.array(self.returns))

    def interval(self, rng: np.random.Generator) -> tuple[float, float] | None:
        """Return the bootstrap interval of the mean; None where replicates are too few for one."""
        if len(self.returns) < FEWEST_FOR_INTERVAL:
            return None
        return stratified_bootstrap({self.panel: self.returns}, rng)

    def band(self, grid: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the 20th, 50th and 80th percentile of the learning curves on a grid.

        A run that solved its problem stays where it ended. Of the others nothing is known beyond
        their end, so the band is NaN beyond the first of these.
        """
        evaluated = [(run, [row for row in run.rows if "eval_return" in row]) for run in self.runs]
        curves = [
            step_curve(
                [row["online_steps"] for row in rows],
                [row["eval_return"] for row in rows],
                grid,
                before=None if "env" in run.spec else 0.0,
                ended=run.summary is not None and run.summary["solved"],
            )
            for run, rows in evaluated
            if rows
        ]
        return quantile_band(np.stack(curves))


@dataclass(frozen=True)
class SuiteResult:
    """A suite's records, read from its directory."""

    title: str
    manifest: dict[str, Any]
    lines: tuple[Line, ...]
    failures: dict[str, str]
    """Errors by run id."""
    missing: int
    """Runs that have neither result nor error yet."""

    @classmethod
    def read(cls, path: Path) -> "SuiteResult":
        """Read whatever has been recorded so far."""
        manifest = read_json(path / "suite.json")
        runs = [
            RunResult.read(path / "runs" / name)
            for name in manifest["runs"]
            if (path / "runs" / name / "manifest.json").exists()
        ]
        failures = {p.stem: p.read_text() for p in sorted((path / "failures").glob("*.txt"))}
        finished = sum(run.summary is not None for run in runs)
        if not finished:
            raise HyqError(f"{path} has no finished run to report yet")
        return cls(
            title=manifest["title"],
            manifest=manifest,
            lines=tuple(_lines(runs)),
            failures=failures,
            missing=len(manifest["runs"]) - finished - len(failures),
        )

    @property
    def on_lock(self) -> bool:
        """Whether the problem is the lock, where returns lie in [0, 1]."""
        return "env" not in self.lines[0].runs[0].spec

    @property
    def shares_scale(self) -> bool:
        """Whether all panels are of one problem, so that their returns can be compared."""
        return len({run.spec.get("env") for line in self.lines for run in line.runs}) == 1

    @property
    def panels(self) -> list[str]:
        """The settings that are drawn side by side, in the order of the suite."""
        return list(dict.fromkeys(line.panel for line in self.lines))

    def value_range(self, panel: str) -> tuple[float, float]:
        """Return the smallest and the largest return that a panel's axis is to hold."""
        if self.on_lock:
            return 0.0, 1.0
        beside = self.panels if self.shares_scale else [panel]
        lines = [line for line in self.lines if line.panel in beside and line.finished]
        shown = [line.returns if line.is_offline else line.band(self.grid) for line in lines]
        values = np.concatenate([np.ravel(part) for part in shown])
        if np.isnan(values).all():  # of every line some run has only begun
            values = np.concatenate([line.returns for line in lines])
        return float(np.nanmin(values)), float(np.nanmax(values))

    @property
    def grid(self) -> FloatArray:
        """Sample counts to read every curve at, evenly on a logarithmic axis."""
        spent = [
            row["online_steps"]
            for line in self.lines
            for run in line.runs
            for row in run.rows
            if row["online_steps"] > 0  # before it acts a method may train on its logs alone
        ]
        first, last = min(spent, default=1), max(spent, default=10)
        return np.geomspace(max(first / 2, 1), max(last, 2), GRID_POINTS)


def _lines(runs: Sequence[RunResult]) -> Iterator[Line]:
    """Group replicates: runs whose specs differ in the seed alone."""
    described = _described_deep(runs) if "env" in runs[0].spec else _described_lock(runs)
    groups: dict[tuple[str, str, str, bool], list[RunResult]] = {}
    for run, panels, label, main in described:
        for panel in panels:
            groups.setdefault((panel, label, run.spec["algorithm"], main), []).append(run)
    lines = [
        Line(label, panel, method, main, tuple(members))
        for (panel, label, method, main), members in groups.items()
    ]
    panels = list(dict.fromkeys(line.panel for line in lines))
    methods = [*LABELS, *(line.algorithm for line in lines)]

    def place(line: Line) -> tuple[int, bool, int]:
        return panels.index(line.panel), not line.is_main, methods.index(line.algorithm)

    yield from sorted(lines, key=place)


Described = tuple[RunResult, list[str], str, bool]
"""A run, the panels it is drawn in, its line's label, and whether the line is a main one."""


def _described_lock(runs: Sequence[RunResult]) -> Iterator[Described]:
    several_horizons = len({run.spec["horizon"] for run in runs}) > 1
    datasets = list(dict.fromkeys(run.spec["data"] for run in runs))
    for run in runs:
        spec = run.spec
        label, main = LABELS.get(spec["algorithm"], spec["algorithm"]), True
        if several_horizons and spec["algorithm"] == "hyq":
            label = f"{label}, {spec['data']} data"
        if spec["anti_reward_probability"] != 0.5:
            label, main = f"{label}, anti-reward always paid", False
        if spec["offline_share"] != 0.5:
            label, main = f"{label}, offline share {spec['offline_share']:g}", False
        if several_horizons:
            panels = [f"H = {spec['horizon']}"]
        elif spec["algorithm"] in ("online-only", "briee"):
            panels = datasets  # it never sees the data
        else:
            panels = [spec["data"]]
        yield run, panels, label, main


def _described_deep(runs: Sequence[RunResult]) -> Iterator[Described]:
    """Draw a panel a problem where it has half random data, or else a panel a dataset."""
    by_problem = any(str(run.spec["data"]).endswith("/half") for run in runs)
    for run in runs:
        spec = run.spec
        label, data = LABELS.get(spec["algorithm"], spec["algorithm"]), str(spec["data"])
        problem, _, quality = data.rpartition("/")
        if not by_problem:
            yield run, [data], label, True
        elif quality == "half":
            yield run, [problem], label, True
        else:
            yield run, [problem], f"{label}, {quality} data", False


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def suite_table(result: SuiteResult, rng: np.random.Generator) -> Table:
    """Lay out one row a method and setting."""
    table = Table(title=result.title, title_justify="left", box=SIMPLE, padding=(0, 0, 0, 1))
    table.add_column("data" if len(result.panels) < 3 else "setting", no_wrap=True)
    table.add_column("algorithm", min_width=8)
    for name in ("solved", "samples", "return", "95% interval", "sec"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in result.lines:
        if line.finished:
            table.add_row(*line_cells(line, rng))
    return table


def line_cells(line: Line, rng: np.random.Generator) -> tuple[str, ...]:
    """Say in a table's cells how a method did in a setting."""
    shown = _short if "env" in line.runs[0].spec else "{:.3f}".format
    interval, solve = line.interval(rng), line.samples_to_solve
    return (
        line.panel,
        line.label,
        f"{solve.solved}/{solve.runs}",
        "-" if line.is_offline else str(solve),
        shown(line.mean),
        "-" if interval is None else " to ".join(map(shown, interval)),
        f"{line.seconds:,.0f}",
    )
