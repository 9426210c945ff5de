"""Runs on the lock: records, resuming to the bit, and errors before time is spent."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyq.core.errors import HyqError
from hyq.core.files import read_json, write_json
from hyq.core.types import Array
from hyq.experts.lock import lock_dataset
from hyq.report.records import RunResult, SuiteRecords
from hyq.runs import lock
from hyq.runs.lock_algorithms import LOCK_ALGORITHMS
from hyq.runs.lock_spec import ALGORITHMS, USED_BY, LockRun
from hyq.runs.records import Records, RunDirectory

# Deliberately starved of data, so that it is still learning after several iterations.
SMALL = LockRun(data="trajectory", horizon=8, offline_samples=160, m_on=1, iterations=4, seed=3)


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("seconds", "wall_seconds")}


def results(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    run = RunDirectory.open(path)
    assert run.summary is not None
    return [timeless(row) for row in run.rows], timeless(run.summary)


def test_a_run_writes_its_records_and_summary(tmp_path: Path) -> None:
    spec = LockRun(horizon=6, offline_samples=6000, seed=1)
    updates = list(lock.start(spec, tmp_path / "run"))
    summary = updates[-1].summary
    assert summary is not None
    assert summary["solved"] is True
    assert summary["eval_return"] >= 0.99
    assert summary["offline_samples"] == 6000
    assert summary["online_steps"] == 10 * (6 * 7 // 2) * summary["iterations"]
    assert {"wall_seconds", "seed", "horizon"} <= summary.keys()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["spec"]["horizon"] == 6
    assert {"command", "versions", "commit", "seed", "dataset"} <= manifest.keys()
    rows = RunDirectory.open(tmp_path / "run").rows
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["realised_offline_share"] == pytest.approx(0.5)
    assert rows[-1]["depth"] == pytest.approx(6.0)


def test_a_confirmation_plays_other_episodes_than_what_it_confirms() -> None:
    def hold_still(h: int, observation: Array) -> Array:
        return np.zeros(len(observation), np.int64)

    first, again, other = (
        lock.evaluate(hold_still, SMALL, 50, 1, stream)
        for stream in ("examine", "examine", "confirm")
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path, stop_after: int) -> None:
    list(lock.start(SMALL, tmp_path / "whole"))
    list(islice(lock.start(SMALL, tmp_path / "parts"), stop_after))
    list(lock.resume(tmp_path / "parts"))
    assert results(tmp_path / "whole") == results(tmp_path / "parts")
    learned = [(tmp_path / name / "final.safetensors").read_bytes() for name in ("whole", "parts")]
    assert learned[0] == learned[1]
    assert not (tmp_path / "parts" / "checkpoint").exists()


def test_a_kill_between_record_and_checkpoint_repeats_no_record(tmp_path: Path) -> None:
    list(lock.start(SMALL, tmp_path / "whole"))
    list(islice(lock.start(SMALL, tmp_path / "parts"), 2))
    # As if killed after iteration 3 was recorded but before its checkpoint was written.
    third = RunDirectory.open(tmp_path / "whole").rows[2]
    RunDirectory.open(tmp_path / "parts").append(third)
    with (tmp_path / "parts" / "records.jsonl").open("a") as file:
        file.write('{"iteration": 4, "onl')
    list(lock.resume(tmp_path / "parts"))
    assert results(tmp_path / "whole") == results(tmp_path / "parts")


def test_a_killed_process_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    words = ["run", "lock", "--data", "trajectory", "--horizon", "8", "--offline-samples", "160",
             "--m-on", "1", "--iterations", "4", "--seed", "3"]  # fmt: skip
    command = [sys.executable, "-m", "hyq", *words, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (out / "records.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if not (out / "summary.json").exists():
        list(lock.resume(out))
    list(lock.start(SMALL, tmp_path / "whole"))
    assert results(tmp_path / "whole") == results(out)


def test_records_are_never_overwritten(tmp_path: Path) -> None:
    list(islice(lock.start(SMALL, tmp_path / "run"), 1))
    with pytest.raises(HyqError, match="unfinished run: 'hyq resume"):
        lock.start(SMALL, tmp_path / "run")
    list(lock.resume(tmp_path / "run"))
    with pytest.raises(HyqError, match="exists already"):
        lock.start(SMALL, tmp_path / "run")
    with pytest.raises(HyqError, match="is finished"):
        lock.resume(tmp_path / "run")
    with pytest.raises(HyqError, match="not a run"):
        lock.resume(tmp_path)


def test_a_dataset_is_not_taken_for_a_run(tmp_path: Path) -> None:
    SMALL.dataset().save(tmp_path / "data")
    with pytest.raises(HyqError, match="exists already"):
        lock.start(SMALL, tmp_path / "data")
    with pytest.raises(HyqError, match="not a run"):
        lock.resume(tmp_path / "data")


def test_two_processes_never_write_to_one_run(tmp_path: Path) -> None:
    first = lock.start(SMALL, tmp_path / "run")
    next(first)
    with pytest.raises(HyqError, match="another process"):
        list(lock.resume(tmp_path / "run"))


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    list(islice(lock.start(SMALL, tmp_path / "run"), 2))
    batch = tmp_path / "run" / "checkpoint" / "part-00001.safetensors"
    batch.write_bytes(batch.read_bytes()[:40])
    with pytest.raises(HyqError, match=r"part-00001\.safetensors is missing or damaged"):
        list(lock.resume(tmp_path / "run"))


def test_a_run_can_use_data_from_disk_and_notices_when_it_changes(tmp_path: Path) -> None:
    made = lock_dataset(SMALL.lock, "trajectory", 160, seed=3)
    made.save(tmp_path / "data")
    spec = LockRun(**{**vars(SMALL), "data": str(tmp_path / "data")})
    list(islice(lock.start(spec, tmp_path / "run"), 1))
    list(lock.start(SMALL, tmp_path / "made"))
    other = lock_dataset(SMALL.lock, "trajectory", 160, seed=4)
    (tmp_path / "data").rename(tmp_path / "aside")
    other.save(tmp_path / "data")
    with pytest.raises(HyqError, match="has changed since the run began"):
        lock.resume(tmp_path / "run")
    (tmp_path / "data").rename(tmp_path / "other")
    (tmp_path / "aside").rename(tmp_path / "data")
    list(lock.resume(tmp_path / "run"))
    assert results(tmp_path / "run")[0] == results(tmp_path / "made")[0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"data": "nonsense"}, "no dataset at 'nonsense'"),
        ({"horizon": 9}, "its horizon is 8, this one's is 9"),
        ({"seed": 4}, "its instance_seed is 3, this one's is 4"),
        ({"noise": 0.2}, "its noise is 0.1, this one's is 0.2"),
    ],
)
def test_the_wrong_data_raises_and_leaves_nothing(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    lock_dataset(SMALL.lock, "occupancy", 160, seed=3).save(tmp_path / "data")
    settings = {**vars(SMALL), "data": str(tmp_path / "data"), **change}
    with pytest.raises(HyqError, match=complaint):
        lock.start(LockRun(**settings), tmp_path / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    "change",
    [{"horizon": 0}, {"m_on": 0}, {"seed": -1}, {"offline_share": 1.2}, {"offline_samples": 1},
     {"iterations": 0}, {"evaluation_episodes": 0}, {"anti_reward_probability": 2.0}],
)  # fmt: skip
def test_impossible_runs_raise_when_they_are_described(change: dict[str, Any]) -> None:
    with pytest.raises(HyqError):
        LockRun(**change)


def test_a_run_of_its_own_kind_only(tmp_path: Path) -> None:
    """Options that an algorithm does not use raise, for every algorithm and option."""
    other = {"m_on": 3, "online_budget": 7, "offline_share": 0.3, "data": "trajectory"}
    other["offline_samples"] = 900
    assert set(ALGORITHMS) == set(LOCK_ALGORITHMS)
    for algorithm in ALGORITHMS:
        for name, value in other.items():
            change: dict[str, Any] = {"algorithm": algorithm, name: value}
            if algorithm in USED_BY[name]:
                LockRun(**change)
            else:
                with pytest.raises(HyqError, match=f"{algorithm} does not use {name}"):
                    LockRun(**change)


def damage_deleted(lines: list[str]) -> list[str]:
    return [lines[0], *lines[2:]]


def damage_first(lines: list[str]) -> list[str]:
    return lines[1:]


def damage_last(lines: list[str]) -> list[str]:
    return lines[:-1]


def damage_doubled(lines: list[str]) -> list[str]:
    return [lines[0], *lines]


def damage_swapped(lines: list[str]) -> list[str]:
    return [lines[1], lines[0], *lines[2:]]


def damage_changed(lines: list[str]) -> list[str]:
    return [lines[0].replace('"online_steps": 3', '"online_steps": 4'), *lines[1:]]


@pytest.mark.parametrize(
    "damage",
    [damage_deleted, damage_first, damage_last, damage_doubled, damage_swapped, damage_changed],
)
@pytest.mark.parametrize("finished", [True, False])
def test_damaged_records_are_noticed(tmp_path: Path, damage: Any, finished: bool) -> None:
    path = tmp_path / "run"
    list(islice(lock.start(SMALL, path), None if finished else 3))
    records = path / "records.jsonl"
    lines = records.read_text().splitlines()
    assert damage(lines) != lines
    records.write_text("".join(f"{line}\n" for line in damage(lines)))
    with pytest.raises(HyqError, match=r"records\.jsonl is damaged"):
        _ = RunDirectory.open(path).rows if finished else list(lock.resume(path))


def test_a_record_without_its_evaluation_is_damage(tmp_path: Path) -> None:
    list(islice(lock.start(SMALL, tmp_path / "run"), 2))
    records = Records(tmp_path / "run" / "records.jsonl")
    [first, second], _ = records.read()
    del first["eval_return"]
    (tmp_path / "run" / "records.jsonl").unlink()
    for row in (first, second):
        records.append(row)
    with pytest.raises(HyqError, match="it has no eval_return"):
        list(lock.resume(tmp_path / "run"))


def test_a_first_record_without_its_link_is_noticed(tmp_path: Path) -> None:
    list(islice(lock.start(SMALL, tmp_path / "run"), 1))
    records = tmp_path / "run" / "records.jsonl"
    records.write_text(records.read_text().replace('"chain"', '"chaim"'))
    with pytest.raises(HyqError, match="damaged at line 1"):
        _ = RunDirectory.open(tmp_path / "run").rows


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("summary.json", {"wall_seconds": None}),
        ("summary.json", {"solved": "yes"}),
        ("summary.json", {"online_steps": -1}),
        ("summary.json", {"eval_return": float("nan")}),
        ("manifest.json", {"spec": {"horizon": "x"}}),
        ("manifest.json", {"spec": {"algorithm": []}}),
        ("manifest.json", {"spec": None}),
        ("manifest.json", {"experiment": []}),
    ],
)
def test_values_of_other_types_are_damage_under_any_checksum(
    tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    list(lock.start(SMALL, tmp_path / "run"))
    path = tmp_path / "run" / name
    write_json(path, {**read_json(path), **change})
    with pytest.raises(HyqError, match=f"{name} is damaged"):
        RunResult.read(tmp_path / "run")


@pytest.mark.parametrize("runs", [None, "x", [1], ["../../else"], [".."], ["a/b"]])
def test_a_suite_s_runs_are_names_of_directories_in_it(tmp_path: Path, runs: Any) -> None:
    write_json(tmp_path / "suite.json", {"suite": "s", "title": "t", "runs": runs})
    with pytest.raises(HyqError, match="does not name a suite and its runs"):
        SuiteRecords.read(tmp_path)


def test_a_record_does_not_read_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path / "run", {"experiment": "other"})
    run.append({"iteration": 1, "online_steps": 0})
    with monkeypatch.context() as patched:
        patched.setattr("hyq.runs.records.read_bytes", lambda *_: pytest.fail("it was read"))
        run.append({"iteration": 1, "online_steps": 0})
        run.append({"iteration": 2, "online_steps": 0})
    RunDirectory(run.path).append({"iteration": 3, "online_steps": 0})  # as another process would
    run.append({"iteration": 3, "online_steps": 0})
    run.append({"iteration": 4, "online_steps": 0})
    assert [row["iteration"] for row in RunDirectory(run.path).rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["records.jsonl", "checkpoint", "best"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    path, outside = tmp_path / "run", tmp_path / "outside"
    list(islice(lock.start(SMALL, path), 2))
    if (path / name).exists():
        (path / name).rename(outside)
    (path / name).symlink_to(outside)
    with pytest.raises(HyqError, match=f"{name} is a link or a device"):
        list(lock.resume(path))
    assert (path / name).is_symlink()
