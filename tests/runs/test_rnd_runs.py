"""Runs of random network distillation: records, resuming to the bit, the shell, early refusals."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyq.cli import main
from hyq.core.errors import HyqError
from hyq.models.policy import DeepPolicy
from hyq.runs import deep, rnd, runs
from hyq.runs.deep import DeepRun
from hyq.runs.records import RunDirectory
from hyq.runs.rnd import RNDRun
from tests.runs.test_deep_runs import results

SMALL = RNDRun(
    env="CartPole-v1",
    online_steps=800,
    normalisation_steps=100,
    lanes=4,
    rollout=25,
    report_every=200,
    evaluation_episodes=2,
    evaluate_every=2,
    seed=3,
)
GAME = RNDRun(
    env="hyq/Montezuma-v0",
    preset="cpu",
    online_steps=64,
    normalisation_steps=16,
    lanes=2,
    rollout=8,
    minibatches=2,
    report_every=16,
    env_parameters='{"step_limit": 25, "num_threads": 1}',
)


def test_a_run_of_another_version_is_refused() -> None:
    with pytest.raises(HyqError, match="has magic, which this version"):
        rnd.rnd_run({"env": "CartPole-v1", "algorithm": "rnd", "data": None, "magic": 1})


def test_a_run_writes_records_and_policies(tmp_path: Path) -> None:
    updates = list(rnd.start(SMALL, tmp_path / "run"))
    summary = updates[-1].summary
    assert summary is not None
    assert (summary["algorithm"], summary["data"]) == ("rnd", None)
    assert summary["online_steps"] == 800
    rows = RunDirectory.open(tmp_path / "run").rows
    assert [row["online_steps"] for row in rows] == [200, 400, 600, 800]
    assert ["eval_return" in row for row in rows] == [False, True, False, True]
    ends, totals, lengths = zip(*(e for row in rows for e in row["episodes"]), strict=True)
    assert list(ends) == sorted(ends)
    assert totals == lengths, "the pole pays one a step"
    assert rows[-1]["novelty"] > 0
    for name in ("best", "last"):
        assert DeepPolicy.load(tmp_path / "run" / name).act(np.zeros(4, np.float32)) in (0, 1)
    assert not (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.parametrize(("spec", "stop_after"), [(SMALL, 1), (SMALL, 3), (GAME, 3)])
def test_interrupted_and_resumed_equals_uninterrupted(
    tmp_path: Path, spec: RNDRun, stop_after: int
) -> None:
    list(rnd.start(spec, tmp_path / "whole"))
    list(islice(rnd.start(spec, tmp_path / "parts", checkpoint_seconds=0), stop_after))
    list(runs.resume(tmp_path / "parts"))
    assert results(tmp_path / "whole") == results(tmp_path / "parts")


KILLED = """
import os, signal, sys
from pathlib import Path
from hyq.runs import rnd
from tests.runs.test_rnd_runs import SMALL
for number, _ in enumerate(rnd.start(SMALL, Path(sys.argv[1]), checkpoint_seconds=0), 1):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    root, threads = Path(__file__).parents[2], {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", KILLED, str(out)]
    died = subprocess.run(words, cwd=root, env=threads, check=False)
    assert died.returncode == -signal.SIGKILL
    list(rnd.resume(out))
    list(rnd.start(SMALL, tmp_path / "whole"))
    assert results(out) == results(tmp_path / "whole")


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    list(islice(rnd.start(SMALL, tmp_path / "run", checkpoint_seconds=0), 3))
    path = tmp_path / "run" / "manifest.json"
    path.write_text(path.read_text().replace('"features": null', '"features": 7'))
    with pytest.raises(HyqError, match=r"other settings .*features"):
        list(rnd.resume(tmp_path / "run"))


def test_from_the_shell_beside_a_deep_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "rnd", "--env", "CartPole-v1", "--online-steps", "400", "--lanes", "4"]
    small = ["--rollout", "25", "--normalisation-steps", "100", "--report-every", "200"]
    assert main([*words, *small, "--out", str(tmp_path / "rnd")]) == 0
    shown = capsys.readouterr().out
    assert "pred. error" in shown
    assert "400 of 400" in shown
    assert (tmp_path / "rnd" / "curve.png").read_bytes().startswith(b"\x89PNG")

    dqn = DeepRun(
        env="CartPole-v1",
        algorithm="dqn",
        online_steps=200,
        learning_starts=100,
        report_every=100,
        evaluation_episodes=1,
    )
    list(deep.start(dqn, tmp_path / "dqn"))
    both, picture = [str(tmp_path / "rnd"), str(tmp_path / "dqn")], tmp_path / "both.png"
    assert main(["report", *both, "--figure", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")

    assert main(["evaluate", both[0], "--episodes", "2"]) == 0
    assert "2, drawing its actions as in training" in capsys.readouterr().out

    next(rnd.start(SMALL, tmp_path / "stopped", checkpoint_seconds=0))
    assert main(["resume", str(tmp_path / "stopped")]) == 0
    assert main(["resume", str(tmp_path / "stopped")]) == 2
    assert "finished" in capsys.readouterr().err
    assert main(["methods"]) == 0
    assert "hyq run rnd" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"env": "Pendulum-v1"}, "discrete actions"),
        ({"env": "NoSuchEnv-v0"}, "no environment"),
        ({"lanes": 0}, "at least 1"),
        ({"clip": 0.0}, "above 0"),
        ({"preset": "magic"}, "no preset 'magic'"),
        ({"preset": "cpu"}, "for images"),
        ({"evaluation_episodes": 0, "threshold": 1.0}, "set evaluation_episodes"),
        ({"stop_when_solved": True}, "needs a threshold"),
        ({"env_parameters": "[1]"}, "JSON object"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(HyqError, match=says) as refused:
        rnd.start(replace(SMALL, **settings), tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_equal_specs_have_equal_ids_and_others_do_not() -> None:
    changes: list[dict[str, Any]] = [{}, {"seed": 4}, {"preset": "cpu"}, {"intrinsic": 0.0}]
    assert len({replace(SMALL, **change).id for change in changes}) == len(changes)
    assert replace(SMALL).id == SMALL.id
