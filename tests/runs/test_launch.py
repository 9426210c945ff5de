"""Suites: killed at any moment and started again, they change no number and repeat no work."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hyq.core.errors import HyqError
from hyq.core.files import read_json
from hyq.experts.lock import lock_dataset
from hyq.runs.launch import (
    MOST_LOSSES,
    Event,
    Processes,
    SuiteDirectory,
    execute,
    launch,
    pending,
)
from hyq.runs.lock_spec import LockRun
from hyq.runs.spec import RunSpec
from hyq.runs.suites import SUITES, Suite
from tests.runs.conftest import numbers
from tests.runs.tiny_suite import RUNS, SUITE


def finish(path: Path) -> list[Event]:
    directory = SuiteDirectory.prepare(path, SUITE)
    runs = pending(directory, SUITE, retry=False)
    return [event for event in launch(directory, runs, Processes(path, 2), beat=0.05) if event]


def wait_until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(0.01)


def test_a_pool_gives_the_numbers_of_single_runs(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    events = finish(tmp_path / "suite")
    assert {event.spec.id for event in events} == {run.id for run in RUNS}
    assert numbers(tmp_path / "suite") == undisturbed
    assert finish(tmp_path / "suite") == []  # nothing is ever done twice


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_suite_killed_at_a_random_moment_changes_no_number(
    tmp_path: Path, undisturbed: dict[str, Any], attempt: int
) -> None:
    path = tmp_path / "suite"
    process = subprocess.Popen([sys.executable, "-m", "tests.runs.tiny_suite", str(path)])
    wait_until(lambda: list(path.glob("runs/*/manifest.json")))
    time.sleep(random.Random(attempt).uniform(0.0, 1.5))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not _holders(path))  # its workers notice and go
    finish(path)
    assert numbers(path) == undisturbed


def _holders(path: Path) -> list[Path]:
    """Processes that still hold a run of this suite open."""
    held = []
    for process in Path("/proc").glob("[0-9]*"):
        # A process or a file of it may be gone between being listed and being looked at.
        with contextlib.suppress(OSError):
            for link in list((process / "fd").iterdir()):
                with contextlib.suppress(OSError):
                    if str(link.readlink()).startswith(str(path)):
                        held.append(link)
    return held


def test_a_killed_worker_loses_nothing(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    path = tmp_path / "suite"
    directory = SuiteDirectory.prepare(path, SUITE)
    outcomes = []
    killed = False
    for event in launch(directory, SUITE.runs, Processes(path, 2), beat=0.02):
        holders = {int(link.parts[2]) for link in _holders(path)} - {os.getpid()}
        if not killed and holders and any(directory.progress(run) for run in RUNS):
            os.kill(holders.pop(), signal.SIGKILL)
            killed = True
        if event:
            outcomes.append(event.outcome)
    assert killed
    assert "lost" in outcomes
    assert outcomes.count("finished") == len(RUNS)
    assert numbers(path) == undisturbed


def test_a_run_that_kills_its_workers_costs_the_others_nothing(tmp_path: Path) -> None:
    deadly = RunSpec(env="tests.runs.deadly:CartPole-v1", algorithm="dqn")
    quick = tuple(LockRun(horizon=4, iterations=1, seed=seed) for seed in (1, 2))
    suite = Suite("deadly", "Deadly", (deadly, *quick))
    directory = SuiteDirectory.prepare(tmp_path / "suite", suite)
    events = [
        event
        for event in launch(directory, suite.runs, Processes(directory.path, 2), beat=0.05)
        if event
    ]
    fate = {run.id: [e.outcome for e in events if e.spec == run] for run in suite.runs}
    assert fate[deadly.id] == ["lost"] * MOST_LOSSES + ["failed"]
    assert [fate[run.id] for run in quick] == [["finished"]] * 2
    assert "died again and again" in (directory.failure(deadly) or "")


def test_a_run_that_finished_before_its_worker_died_has_not_failed(tmp_path: Path) -> None:
    run = LockRun(horizon=4, iterations=1)
    suite = Suite("one", "One", (run,))
    directory = SuiteDirectory.prepare(tmp_path / "suite", suite)
    execute(directory.path, run)
    result = directory.summary(run)
    assert result is not None
    execute(directory.path, run)
    assert directory.summary(run) == result
    assert directory.failure(run) is None
    directory.failure_path(run).parent.mkdir()
    directory.failure_path(run).write_text("it was started again")
    assert pending(directory, suite, retry=False) == []
    assert directory.failure(run) is None


def test_a_failed_run_is_shown_kept_apart_and_retried_on_request(tmp_path: Path) -> None:
    data = tmp_path / "data"
    spec = LockRun(data=str(data), horizon=4, offline_samples=40, iterations=1)
    suite = Suite("failing", "Failing", (spec, LockRun(horizon=4, iterations=1, seed=2)))
    directory = SuiteDirectory.prepare(tmp_path / "suite", suite)
    pool = Processes(directory.path, 1)
    events = [e for e in launch(directory, pending(directory, suite, False), pool) if e]
    assert sorted(event.outcome for event in events) == ["failed", "finished"]
    assert "no dataset at" in (directory.failure(spec) or "")
    assert pending(directory, suite, retry=False) == []
    lock_dataset(spec.lock, "occupancy", 40).save(data)
    runs = pending(directory, suite, retry=True)
    assert runs == [spec]
    [event] = [e for e in launch(directory, runs, pool) if e]
    assert event.outcome == "finished"
    assert directory.failure(spec) is None


def test_a_directory_of_another_suite_raises(tmp_path: Path) -> None:
    SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    with pytest.raises(HyqError, match="holds another suite"):
        SuiteDirectory.prepare(tmp_path / "suite", Suite("other", "Other", RUNS[:1]))
    with pytest.raises(HyqError, match="holds another suite"):
        SuiteDirectory.prepare(tmp_path / "suite", Suite("other", "Other", SUITE.runs))
    fewer = Suite(SUITE.name, SUITE.title, SUITE.runs[:-1])
    with pytest.raises(HyqError, match="holds another suite"):
        SuiteDirectory.prepare(tmp_path / "suite", fewer)


def test_a_suite_writes_through_no_link(tmp_path: Path) -> None:
    SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    (tmp_path / "outside").mkdir()
    (tmp_path / "suite" / "runs").symlink_to(tmp_path / "outside")
    with pytest.raises(HyqError, match="is a link or a device"):
        SuiteDirectory.prepare(tmp_path / "suite", SUITE)


def test_a_suite_that_has_grown_continues_in_its_directory(tmp_path: Path) -> None:
    begun = Suite(SUITE.name, SUITE.title, SUITE.runs[:-1])
    directory = SuiteDirectory.prepare(tmp_path / "suite", begun)
    before = read_json(directory.path / "suite.json")
    SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    after = read_json(directory.path / "suite.json")
    assert after == before | {"runs": [run.id for run in SUITE.runs]}
    assert pending(directory, SUITE, retry=False) == list(SUITE.runs)


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_has_runs_of_distinct_ids(name: str) -> None:
    assert len(SUITES[name]("full").runs) > len(SUITES[name]("quick").runs) > 0
    with pytest.raises(HyqError, match="equal id"):
        Suite("twice", "Twice", (RUNS[0], RUNS[0]))


def test_ids_tell_every_setting_apart() -> None:
    changes: list[dict[str, Any]] = [
        {"algorithm": "bc"}, {"data": "trajectory"}, {"horizon": 9}, {"seed": 1}, {"m_on": 3},
        {"offline_share": 0.1}, {"anti_reward_probability": 1.0}, {"noise": 0.3}, {"dense": True},
    ]  # fmt: skip
    ids = {LockRun().id, *(LockRun(**change).id for change in changes)}
    assert len(ids) == len(changes) + 1
