"""Ablations and datasets: runs are named by what differs, and noise is called noise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyq.cli import main
from hyq.commands.report import report_suite
from hyq.core.errors import HyqError
from hyq.report.ablations import (
    WHOLE,
    ablation_table,
    name_ablations,
    recent_return,
    seed_range,
    steps_until,
)
from hyq.report.lines import RECENT_EPISODES
from hyq.report.records import RunResult
from hyq.runs.suites import ABLATIONS
from tests.report.suites import Page, Row, write_suite

STEPS = 20_000
ONE_CHANGED = {name: changes for name, changes in ABLATIONS.items() if len(changes) == 1}


def ablation(level: float, **changes: Any) -> RunResult:
    usual: dict[str, Any] = {name: None for one in ABLATIONS.values() for name in one}
    spec = {"algorithm": "hyq", "seed": 100, "online_steps": STEPS}
    rows = [
        {"online_steps": 10_000 * n, "recent_return": level * (n - 1), "episodes": []}
        for n in (1, 2)
    ]
    return RunResult({**spec, "settings": {**usual, **changes}}, rows, None)


def test_runs_are_named_by_what_was_changed() -> None:
    names = list(ONE_CHANGED)[:3]
    runs = [ablation(900.0), *(ablation(900.0, **ONE_CHANGED[name]) for name in names)]
    found = name_ablations([*runs, ablation(900.0, somebodys="own")])
    assert list(found) == [WHOLE, *names, 'somebodys="own"']
    assert recent_return(found[WHOLE], 15_000) == 450.0
    assert np.isnan(recent_return(found[WHOLE], 5_000))
    assert np.isnan(recent_return(found[WHOLE], 30_000))


def test_differences_that_another_seed_could_make_are_in_brackets() -> None:
    levels = (900.0, 1400.0, 200.0)
    runs = dict(zip((WHOLE, "b", "c"), map(ablation, levels), strict=True))
    rows = ablation_table(runs, STEPS).rows
    assert [row[-1] for row in rows] == ["", "(+500)", "-700"]
    assert [row[-1] for row in ablation_table({"b": runs["b"]}, STEPS).rows] == ["-"]
    assert seed_range(300_000) < seed_range(300_001) < seed_range(5_000_000)


def test_the_report_of_ablations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (name, changes), *_ = ONE_CHANGED.items()
    runs = [ablation(900.0), ablation(100.0, **changes), None]
    path = write_suite(tmp_path / "suite", runs, "ablations")
    assert main(["report", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "-800" in said
    assert "One seed a row" in said
    page = " ".join(Page((path / "report.html").read_text()).text.split())
    assert f"1 of 1 changes lower the return by more than another seed may: {name}." in page
    assert "3 runs. 3 of them are under way or still to come." in page
    assert (path / "figure.png").stat().st_size > 1000


def episodes(count: int, points: float, after: int = 0) -> list[tuple[int, float, int]]:
    """List episodes of 10 steps each, all as good."""
    return [(after + 10 * (number + 1), points, 10) for number in range(count)]


def run_of(*records: list[tuple[int, float, int]], data: str = "some", seed: int = 1) -> RunResult:
    rows: list[Row] = [{"episodes": part, "online_steps": 0} for part in records]
    return RunResult({"env": "E", "algorithm": "hyq", "data": data, "seed": seed}, rows, None)


def test_steps_are_counted_until_a_hundred_successive_episodes_earn_enough() -> None:
    poor, good = episodes(300, 0.0), episodes(RECENT_EPISODES, 2000.0, after=3000)
    assert steps_until(run_of(poor, good), 1500.0) == 3000 + 750, "75 good ones of the last 100"
    assert steps_until(run_of(poor, good), 2000.0) == 3000 + 1000
    assert steps_until(run_of(poor, good), 2001.0) == np.inf
    assert steps_until(run_of([(5, 300_000.0, 5)], poor), 3000.0) == 990, "not before a hundred"
    assert steps_until(run_of(episodes(99, 5000.0)), 0.0) == np.inf


def test_the_report_of_datasets_has_every_run_and_the_medians(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for seed in (103, 104, 105):
        for data, level in (("easy", 3000.0), ("medium", 1600.0)):
            poor = episodes(100 * (seed - 100), 0.0)
            good = episodes(RECENT_EPISODES, level, after=10 * len(poor))
            runs.append(run_of(poor, good, data=data, seed=seed))
    path = write_suite(tmp_path / "suite", [*runs[:-1], None], "coverage")
    assert main(["report", str(path)]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["easy", "median", "4,500", "4,840"] in shown
    assert ["medium", "103", "3,940", "not", "reached"] in shown
    assert sum(line[:1] == ["medium"] for line in shown) == 3, "two runs and the median"
    page = Page((path / "report.html").read_text())
    assert "Soonest to 2,500 points: easy (4,840), then medium (not reached)." in page.text
    assert "3 seeds" in page.text


@pytest.mark.parametrize("name", ["ablations", "coverage", "montezuma", "small"])
def test_a_suite_without_records_is_a_clear_error(tmp_path: Path, name: str) -> None:
    path = write_suite(tmp_path / "suite", [None, None], name)
    (path / "datasets.json").write_text("{}")
    with pytest.raises(HyqError, match="no records"):
        report_suite(path)
