"""The subcommands that train a deep agent, from the shell to the reports they write."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hyq.cli import main
from hyq.commands.report import report_suite
from hyq.core.errors import HyqError
from hyq.runs import runner
from hyq.runs.launch import Processes, SuiteDirectory, launch, pending
from hyq.runs.longer import lengthen
from hyq.runs.records import RunDirectory
from hyq.runs.spec import RunSpec
from hyq.runs.suites import Suite, baseline, deep_suite

TINY = RunSpec(
    env="MountainCar-v0",
    data="mountaincar/half",
    settings={
        "online_steps": 400,
        "pretraining": 50,
        "learning_starts": 100,
        "update_every": 8,
        "report_every": 200,
    },
    evaluation_episodes=2,
    threshold=-110.0,
)


def test_a_suite_of_deep_runs_gets_its_figure_and_page(tmp_path: Path) -> None:
    runs = (TINY, baseline(TINY, "dqn"), baseline(TINY, "bc"))
    suite = Suite("deep", "Tiny", runs)
    directory = SuiteDirectory.prepare(tmp_path / "suite", suite)
    pool = Processes(directory.path, 1)
    outcomes = [e.outcome for e in launch(directory, pending(directory, suite, False), pool) if e]
    assert outcomes == ["finished"] * 3
    assert pending(directory, suite, False) == []
    report_suite(directory.path)
    assert (directory.path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<h1>Tiny</h1>" in (directory.path / "report.html").read_text()


def test_the_suites_runs_all_differ_and_can_be_built() -> None:
    runs = deep_suite("full").runs
    assert len({run.id for run in runs}) == len(runs)
    assert {run.seed for run in runs} == set(range(100, 105))
    assert len(deep_suite("quick").runs) < len(runs)


def test_run_resume_and_report_from_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["train", "--env", "MountainCar-v0", "--data", "mountaincar/half"]
    settings = ["--online-steps", "400", "--pretraining", "50", "--report-every", "200"]
    quick = ["--evaluation-episodes", "1", "--beta", "0:0.5, 400:0.25", "--tensorboard"]
    assert main([*words, *settings, *quick, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "steps/s" in shown
    assert "400 of 400" in shown
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((out / "tensorboard").glob("events*"))
    assert main(["report", str(out), "--figure", str(tmp_path / "again.png")]) == 0
    assert "MountainCar" in capsys.readouterr().out
    assert main(["resume", str(out)]) == 2
    assert "finished" in capsys.readouterr().err
    assert main(["evaluate", str(out), "--episodes", "2"]) == 0
    assert "2, acting greedily" in capsys.readouterr().out
    assert main(["evaluate", str(out), "--data", "acrobot/half"]) == 2
    assert "observation has shape" in capsys.readouterr().err


def test_a_missing_package_is_noticed_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ["train", "--env", "CartPole-v1", "--algorithm", "dqn", "--tensorboard"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_is_resumed_from_the_shell(tmp_path: Path) -> None:
    steps = runner.start(TINY, tmp_path / "run", checkpoint_seconds=0)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "curve.png").exists()


def records(path: Path) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """What a run recorded but for the time it took, and the policy it ended with."""
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in RunDirectory(path).rows]
    return rows, {file.name: file.read_bytes() for file in (path / "last").iterdir()}


def test_a_resumed_run_is_the_same_to_the_bit(tmp_path: Path) -> None:
    list(runner.start(TINY, tmp_path / "whole"))
    steps = runner.start(TINY, tmp_path / "parts", checkpoint_seconds=0)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    list(runner.resume(tmp_path / "parts"))
    assert records(tmp_path / "parts") == records(tmp_path / "whole")


def test_a_run_that_is_made_longer_is_the_longer_run(tmp_path: Path) -> None:
    longer = replace(TINY, settings={**TINY.settings, "online_steps": 800})
    list(runner.start(longer, tmp_path / "whole"))
    list(runner.start(TINY, tmp_path / "short", keep_checkpoint=True))
    lengthen(tmp_path / "short", 800, tmp_path / "longer")
    list(runner.resume(tmp_path / "longer"))
    assert records(tmp_path / "longer") == records(tmp_path / "whole")
    with pytest.raises(HyqError, match="has 400 online steps already"):
        lengthen(tmp_path / "short", 400, tmp_path / "again")
    with pytest.raises(HyqError, match="has changed since the run began"):
        RunDirectory(tmp_path / "longer").check_data({"sha256": "other"})


def test_the_lists_name_what_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms"]) == 0
    assert "implicit Q-learning" in capsys.readouterr().out
    assert main(["data", "list"]) == 0
    assert "mountaincar/half" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "Pendulum-v1", "--algorithm", "dqn"], "not for continuous actions"),
        (["--env", "CartPole-v1", "--data", "mountaincar/half"], "shape"),
        (["--env", "CartPole-v1"], "learns from offline data"),
        (
            ["--env", "CartPole-v1", "--algorithm", "dqn", "--pretraining", "9"],
            "Unrecognized options: --pretraining",
        ),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
