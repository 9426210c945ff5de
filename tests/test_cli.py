"""The command as a person meets it: help, results, and one-line errors."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hyq.cli import SUBCOMMANDS, main, summary
from hyq.commands import train
from hyq.data.dataset import Dataset

QUICK = ["--horizon", "6", "--offline-samples", "6000"]
CART_POLE = ["train", "--env", "CartPole-v1"]


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail, and return its one line of complaint."""
    assert main(words) == 2
    text = capsys.readouterr().err
    assert text.startswith("hyq: ")
    assert text.count("\n") == 1
    return text


def test_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"hyq {subcommand}" in listed for subcommand in SUBCOMMANDS)


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_subcommand_teaches(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*subcommand.split(), "--help"])
    assert stop.value.code == 0
    taught = capsys.readouterr().out
    assert f"usage: hyq {subcommand}" in taught
    assert len(summary(subcommand)) > 20
    assert summary(subcommand) in " ".join(taught.split())


@pytest.mark.parametrize("words", [["run", "--help"], ["data", "-h"], ["data", "--help"]])
def test_a_group_of_subcommands_has_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    listed = capsys.readouterr().out
    group = " ".join(words[:-1])
    assert all(
        (f"hyq {subcommand} " in listed) == subcommand.startswith(group)
        for subcommand in SUBCOMMANDS
    )


def test_help_does_not_wait_for_pytorch() -> None:
    script = """
import sys
from hyq.cli import main
main(["--help"])
print(sorted({"torch", "numpy", "scipy", "matplotlib"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ended.stdout.decode().splitlines()[-1] == "[]"


def test_the_values_of_a_preset_are_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    for preset, steps in (("default", 1), ("cpu-montezuma", 16)):
        with pytest.raises(SystemExit):
            main(["train", "--preset", preset, "--help"])
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        about = shown.partition("--update-every INT")[2].partition("--")[0]
        assert f"(default: {steps})" in about


def test_run_report_and_data_go_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = str(tmp_path / "data"), tmp_path / "run"
    words = ["data", "make", "lock", "--kind", "occupancy", "--horizon", "6", "--size", "6000"]
    assert main([*words, "--out", data]) == 0
    assert "6,000" in capsys.readouterr().out
    assert main(["run", "lock", "--horizon", "6", "--data", data, "--out", str(run)]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert summary["solved"]
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    figure = tmp_path / "new" / "both.png"
    assert main(["report", str(run), str(run), "--figure", str(figure)]) == 0
    assert "not yet" not in capsys.readouterr().out
    assert figure.exists()
    words = ["report", str(run), "--figure"]
    assert "is a directory" in complaint([*words, str(figure.parent)], capsys)
    assert "cannot write" in complaint([*words, str(figure / "curve.png")], capsys)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fly"], "no subcommand 'fly'"),
        (["run", "lock", "--data", "neither"], "no dataset at 'neither'"),
        (["run", "lock", "--horizon", "many"], "hyq: --horizon wants a whole number, got 'many' ("),
        (["run", "lock", "--horizon", "1.5"], "hyq: --horizon wants a whole number, got '1.5' ("),
        (
            [*CART_POLE, "--online-steps", "few"],
            "hyq: --online-steps wants a whole number, got 'few' (",
        ),
        (
            [*CART_POLE, "--oline-steps", "3"],
            "hyq: Unrecognized options: --oline-steps, 3; Perhaps you meant: --online-steps",
        ),
        (["run", "lock", "--horizon", "-3"], "horizon must be at least 1"),
        (["run", "lock", "--horizon", "1e0", "--offline-share", "7"], "offline_share must lie in"),
        (["run", "lock", "--colour", "blue"], "hyq: Unrecognized options: --colour, blue (hyq run"),
        (["run", "lock", "--offline-share", "7"], "offline_share must lie in"),
        ([*CART_POLE, "--algorithm", "dqn", "--device", "gpu"], "no device 'gpu'"),
        ([*CART_POLE, "--algorithm", "rnd", "--device", "gpu"], "no device 'gpu'"),
        ([*CART_POLE, "--algorithm", "dqn", "--env-parameters", '{"bogus": 1}'], "'bogus'"),
        ([*CART_POLE, "--env-parameters", "[1]"], "parameters are given as a JSON object"),
        ([*CART_POLE, "--algorithm", "sarsa"], "no algorithm 'sarsa'"),
        (["data", "make", "lock", "--kind", "best"], "best"),
        (["data", "make", "lock", "--kind", "occupancy", "--size", "5"], "at least 100"),
        (
            ["train", "--env", "MiniGrid-DoorKey-5x5-v0", "--data", "doorkey/half"],
            "the data was made with wrappers minigrid.wrappers:FullyObsWrapper minigrid.w",
        ),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in complaint([*words, "--out", str(tmp_path / "out")], capsys)
    assert list(tmp_path.iterdir()) == []


def test_missing_things_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(["run", "lock"], capsys)
    assert said == "hyq: Missing from hyq run lock: --out PATH (hyq run lock --help)\n"
    assert "not a run" in (said := complaint(["resume", str(tmp_path)], capsys))
    assert said.endswith("(more: docs/going_live.md)\n")
    assert "no dataset" in complaint(["data", "show", str(tmp_path / "none")], capsys)
    assert "at least one run" in complaint(["report"], capsys)
    for nothing in (tmp_path, tmp_path / "none"):
        said = complaint(["evaluate", str(nothing)], capsys)
        assert f"{nothing} holds no policy" in said


def test_an_evaluation_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    seen = np.zeros((4, 2), np.float32)
    Dataset.from_arrays(seen, np.zeros(4, int), np.ones(4), seen, np.zeros(4)).save(data)
    assert "data holds no policy" in complaint(["evaluate", str(data)], capsys)
    # As a run is that was stopped between its first checkpoint and its first evaluation.
    (run / "checkpoint").mkdir(parents=True)
    (run / "manifest.json").write_text('{"experiment": "deep", "spec": {}}')
    (run / "checkpoint" / "state.safetensors").write_bytes(b"")
    assert "run holds no policy" in complaint(["evaluate", str(run)], capsys)
    (run / "manifest.json").write_text('{"experiment": "lock", "spec": {}}')
    assert "give the data to evaluate it on as --data" in complaint(["evaluate", str(run)], capsys)


def test_the_list_of_datasets_says_what_they_are_and_does_not_wait_for_pytorch() -> None:
    script = """
import sys
from hyq.cli import main
main(["data", "list"])
print("torch" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    *listed, slow = [line.split() for line in ended.stdout.decode().splitlines()]
    assert slow == ["False"]
    assert ["doorkey/half", "MiniGrid-DoorKey-5x5-v0", "10,000"] in listed
    assert ["in", "minigrid.wrappers:ImgObsWrapper"] in listed
    assert ["montezuma/hard", "hyq/Montezuma-v0", "100,000"] in listed


def test_data_is_not_made_for_a_place_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "lock_dataset", lambda *_: pytest.fail("data was made"))
    words = ["data", "make", "lock", "--kind", "occupancy", "--out", str(tmp_path)]
    assert "exists already" in complaint(words, capsys)


def test_an_environment_may_lie_in_the_working_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console script's own path lacks the working directory, unlike that of python -m."""
    (tmp_path / "hyq_test_plant.py").write_text("import hyq_test_no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    words = ["train", "--algorithm", "dqn", "--env", "hyq_test_plant:Plant-v0", "--out", "out"]
    assert "No module named 'hyq_test_no_such_package'" in complaint(words, capsys)


def test_saved_episodes_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = np.array([False, False, True, False])
    seen = np.zeros((4, 2), np.float32)
    logs = Dataset.from_arrays(seen, np.zeros(4, int), np.ones(4), seen, end, ~end & False)
    logs.save(tmp_path / "logs")
    assert main(["data", "show", str(tmp_path / "logs")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for fact in ("transitions │ 4", "episodes │ 2", "(2,) float32", "50.00%"):
        assert fact in said


def test_an_existing_output_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    words = ["run", "lock", *QUICK, "--out", str(tmp_path / "mine")]
    assert "exists already" in complaint(words, capsys)
    assert (tmp_path / "mine").read_text() == "precious"


def test_control_c_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["run", "lock", "--data", "trajectory", "--horizon", "30", "--offline-samples", "300",
             "--m-on", "1", "--iterations", "20", "--out", str(out)]  # fmt: skip
    command = [sys.executable, "-m", "hyq", *words]
    # Where the tests run in the background, a shell may have had them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 120
    while not (out / "records.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, complained = process.communicate()
    assert process.returncode == 130
    assert complained.decode().count("\n") == 1
    assert "hyq resume" in complained.decode()
    assert main(["resume", str(out)]) == 0
    assert json.loads((out / "summary.json").read_text())["iterations"] == 20
