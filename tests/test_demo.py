"""The demonstration at a small size: its log, its runs and its page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hyq
from hyq.cli import main
from hyq.commands import demo
from hyq.experts.scripted import scripted_dataset
from hyq.report.compare import compared, line_panels
from hyq.report.records import RunResult
from hyq.report.start import NAMES, start_lines, start_table
from hyq.runs.lock_spec import LockRun
from hyq.runs.spec import RunSpec
from hyq.runs.suites import start_runs


def test_the_log_says_what_the_data_says(tmp_path: Path) -> None:
    data = scripted_dataset("mountaincar", 0.5, seed=0, transitions=1500)
    demo.write_log(data, tmp_path / "log.csv")
    read = hyq.load(tmp_path / "log.csv")
    ended = sum(episode.terminated for episode in data)
    # A truncated episode has no row that says where its last action led.
    assert len(read) == len(data) - (data.num_episodes - ended)
    assert sum(episode.terminated for episode in read) == ended
    for a, b in zip(data, read, strict=True):
        steps = len(b.action)
        assert isinstance(a.observation, np.ndarray)
        assert isinstance(b.observation, np.ndarray)
        assert np.array_equal(a.observation[:steps], b.observation[:steps])
        assert np.array_equal(a.action[:steps], b.action)


def short(spec: RunSpec) -> RunSpec:
    settings = {name: v for name, v in spec.settings.items() if name != "updates"}
    few = {"updates": 20} if "updates" in spec.settings else {"report_every": 32}
    few |= {"pretraining": 10} if spec.algorithm == "hyq" else {}
    return replace(spec, evaluation_episodes=1, settings={**settings, **few})


def test_it_ends_with_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "LIVE_STEPS", 64)
    monkeypatch.setattr(demo, "start_runs", lambda *a: tuple(map(short, start_runs(*a))))
    small = LockRun(horizon=3, offline_samples=900, iterations=1)
    monkeypatch.setattr(demo, "LockRun", lambda data: replace(small, data=data))
    assert main(["demo"]) == 0
    page = tmp_path / "demo/1/index.html"
    assert capsys.readouterr().out.rstrip().endswith(f"open {page}")
    text = page.read_text()
    assert "On MountainCar-v0, no run solved it" in text
    assert text.count('<div class="chart">') == 2


def run(algorithm: str, seed: int, solved_at: int | None, value: float) -> RunResult:
    spec = {"algorithm": algorithm, "env": "MountainCar-v0", "seed": seed, "threshold": -110.0}
    steps = 0 if algorithm == "cql" else 1000
    rows = [{"online_steps": steps, "eval_return": value}]
    summary = {"solved": solved_at is not None, "solved_at": solved_at, "eval_return": value}
    summary["online_steps"] = steps
    return RunResult(spec, rows, summary)


def test_the_table_is_of_medians_and_ranges() -> None:
    runs = [
        *(run("hyq", seed, at, -100.0 - seed) for seed, at in enumerate((300, 500, 400))),
        *(run("dqn", seed, None, -200.0) for seed in range(2)),
        run("cql", 0, None, -120.0),
    ]
    hybrid, online, offline = start_table(runs).rows
    assert hybrid[1:] == ("3 of 3", "400 (500)", "-101 (-102 to -100)")
    assert online[1:] == ("0 of 2", "-", "-200 (-200 to -200)")
    assert offline[1:] == ("0 of 1", "-", "-120 (-120 to -120)")
    lines = start_lines(runs)
    (panel,) = line_panels(lines)
    assert [level.value for level in panel.levels] == [-120.0, -110.0]
    assert [curve.label for curve in panel.curves] == [*NAMES.values()][:2]
    said, *_ = compared(lines)
    assert "logs and live steps (Hy-Q) solved 3 of 3 after 400 online steps" in said
