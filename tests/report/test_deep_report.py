"""What is shown of deep runs: the line, the table, the curve, the page of a suite, TensorBoard."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hyq.cli import main
from hyq.commands.suites import report_suite
from hyq.report.deep import line
from hyq.report.tensorboard import to_tensorboard
from hyq.runs import deep
from hyq.runs.deep import DeepRun
from hyq.runs.launch import SuiteDirectory, launch, pending
from hyq.runs.suites import Suite, deep_suite
from hyq.runs.trainings import Progress

TINY = DeepRun(
    env="MountainCar-v0",
    data="mountaincar/half",
    online_steps=400,
    pretraining=50,
    learning_starts=100,
    n_value=8,
    report_every=200,
    evaluation_episodes=2,
    threshold=-110.0,
)


def test_a_suite_of_deep_runs_gets_its_figure_and_page(tmp_path: Path) -> None:
    runs = (TINY, replace(TINY, algorithm="dqn"), replace(TINY, algorithm="bc"))
    suite = Suite("deep", "Tiny", runs)
    directory = SuiteDirectory.prepare(tmp_path / "suite", suite)
    outcomes = [e.outcome for e in launch(directory, pending(directory, suite, False), 1) if e]
    assert outcomes == ["finished"] * 3
    assert pending(directory, suite, False) == []
    report_suite(directory.path)
    assert (directory.path / "figure.png").read_bytes().startswith(b"\x89PNG")
    page = (directory.path / "report.html").read_text()
    match = re.search(r"const data = (\{.*?\});\n", page)
    assert match is not None
    data = json.loads(match[1])
    assert data["panels"] == ["mountaincar"]
    low, high = data["ranges"]["mountaincar"]
    assert -200.0 <= low <= high < 0.0, "the axis holds the returns, not [0, 1]"
    levels = {series["label"]: "level" in series for series in data["series"]}
    assert levels == {"Hy-Q": False, "DQN, online only": False, "BC": True}


def test_the_suites_runs_all_differ_and_can_be_built() -> None:
    runs = deep_suite("full").runs
    assert len({run.id for run in runs}) == len(runs)
    assert {run.seed for run in runs} == set(range(100, 105))
    assert len(deep_suite("quick").runs) < len(runs)


def test_run_resume_and_report_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["run", "deep", "--env", "MountainCar-v0", "--data", "mountaincar/half"]
    settings = ["--online-steps", "400", "--pretraining", "50", "--report-every", "200"]
    quick = ["--evaluation-episodes", "1", "--beta", "0:0.5, 400:0.25", "--tensorboard"]
    assert main([*words, *settings, *quick, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "steps/s" in shown
    assert "400 of 400" in shown
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((out / "tensorboard").glob("events*"))
    assert main(["report", str(out), "--picture", str(tmp_path / "again.png")]) == 0
    assert "MountainCar" in capsys.readouterr().out
    assert main(["resume", str(out)]) == 2
    assert "finished" in capsys.readouterr().err
    assert main(["evaluate", str(out), "--episodes", "2"]) == 0
    assert "2, without random actions" in capsys.readouterr().out
    assert main(["evaluate", str(out), "--data", "acrobot/half"]) == 2
    assert "observations have shape" in capsys.readouterr().err


def test_tensorboard_is_told_every_number_and_the_speed(tmp_path: Path) -> None:
    rows = [
        {"iteration": n, "online_steps": 100 * n, "updates": 7, "eval_return": 1.5, "seconds": s}
        for n, s in ((3, {"act": 1.0, "learn": 1.0}), (4, {"act": 1.0, "learn": 3.0}))
    ]
    given = [Progress({**row, "episodes": [[1, 2, 3]]}, None) for row in rows]
    assert list(to_tensorboard(iter(given), tmp_path)) == given
    events = EventAccumulator(str(tmp_path)).Reload()
    found = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    assert found == {
        "iteration": [(300, 3), (400, 4)],
        "online_steps": [(300, 300), (400, 400)],
        "updates": [(300, 7), (400, 7)],
        "eval_return": [(300, 1.5), (400, 1.5)],
        "seconds/act": [(300, 1.0), (400, 1.0)],
        "seconds/learn": [(300, 1.0), (400, 3.0)],
        # The first record is of a run that goes on: what it began with is not known.
        "steps_per_second": [(400, 25.0)],
    }


def test_a_missing_package_is_noticed_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ["run", "deep", "--env", "CartPole-v1", "--algorithm", "dqn", "--tensorboard"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_is_resumed_from_the_shell(tmp_path: Path) -> None:
    steps = deep.start(TINY, tmp_path / "run", checkpoint_seconds=0)
    next(steps)
    del steps
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "curve.png").exists()


def test_the_lists_name_what_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    assert "implicit Q-learning" in capsys.readouterr().out
    assert main(["data", "list"]) == 0
    assert "mountaincar/half" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "Pendulum-v1", "--algorithm", "dqn"], "discrete actions"),
        (["--env", "CartPole-v1", "--data", "mountaincar/half"], "shape"),
        (["--env", "CartPole-v1"], "without logs"),
        (
            ["--env", "CartPole-v1", "--algorithm", "dqn", "--pretraining", "9"],
            "no use of pretraining",
        ),
    ],
)
def test_refusals_are_one_line(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "deep", *words, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_line_says_what_is_known_and_leaves_out_the_rest() -> None:
    row: dict[str, Any] = {
        "online_steps": 3000,
        "seconds": {"act": 1.0, "learn": 1.0},
        "eval_return": -110.0,
        "td_offline": 0.25,
        "start_q": -64.8,
        "start_return": -67.6,
    }
    text = line(row, 1000)
    assert "3,000" in text
    assert "1,000" in text, "2,000 steps in 2 seconds"
    assert "0.25/-" in text
    assert "-64.8/-67.6" in text
