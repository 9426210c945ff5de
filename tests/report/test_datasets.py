"""The report on datasets: how many steps a run took until its episodes earned so much."""

from pathlib import Path

import numpy as np
import pytest

from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.report.datasets import SUCCESSIVE, Curve, read_curves
from hyq.report.runs import RunResult
from hyq.runs.launch import SuiteDirectory
from hyq.runs.suites import coverage_suite
from tests.report.test_montezuma_report import write_run

SUITE = coverage_suite("full")


def episodes(count: int, points: float, after: int = 0) -> list[tuple[int, float, int]]:
    """List episodes of 10 steps each, all as good."""
    return [(after + 10 * (number + 1), points, 10) for number in range(count)]


def steps_until(points: float, *records: list[tuple[int, float, int]]) -> float:
    rows = [{"episodes": part} for part in records]
    return Curve.of(RunResult({"data": "some", "seed": 1}, rows, None)).steps_until(points)


def test_steps_are_counted_until_a_hundred_successive_episodes_earn_enough() -> None:
    poor, good = episodes(300, 0.0), episodes(SUCCESSIVE, 2000.0, after=3000)
    assert steps_until(1500.0, poor, good) == 3000 + 750, "75 good ones among the last 100"
    assert steps_until(2000.0, poor, good) == 3000 + 1000
    assert steps_until(2001.0, poor, good) == np.inf
    lucky = [(5, 300_000.0, 5)]
    assert steps_until(3000.0, lucky, poor) == 990, "not before there are a hundred"


def test_too_few_episodes_reach_nothing(tmp_path: Path) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    with pytest.raises(HyqError, match="no records"):
        read_curves(directory.path)
    write_run(directory, SUITE.runs[0], [{"episodes": []}, {"episodes": episodes(99, 5000.0)}])
    ((curve,),) = read_curves(directory.path).values()
    assert curve.steps_until(0.0) == np.inf
    main(["report", "suite", str(directory.path)])
    assert (directory.path / "figure.png").exists()


def test_the_report_has_every_run_and_the_median_of_each_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    for run in SUITE.runs[:-1]:
        poor = episodes(100 * (run.seed - 100), 0.0)
        level = 3000.0 if run.data == "montezuma/easy" else 1600.0
        good = episodes(SUCCESSIVE, level, after=10 * len(poor))
        write_run(directory, run, [{"episodes": poor}, {"episodes": good}])
    main(["report", "suite", str(directory.path)])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["montezuma/easy", "median", "4,500", "4,840"] in shown
    assert ["montezuma/medium", "103", "3,940", "not", "reached"] in shown
    assert sum(line[:1] == ["montezuma/hard"] for line in shown) == 3, "two runs and the median"
    assert (directory.path / "figure.png").stat().st_size > 1000
