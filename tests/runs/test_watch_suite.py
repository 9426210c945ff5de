"""What the command shows of a suite under way, and what it returns."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import hyq.commands.suites as command
from hyq.core.errors import HyqError
from hyq.core.files import append_line, write_json
from hyq.core.terminal import Terminal
from hyq.runs.launch import Event, SuiteDirectory
from tests.runs.tiny_suite import RUNS, SUITE


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Console:
    console = Terminal(file=StringIO(), width=200, record=True)
    monkeypatch.setattr(command, "console", console)
    return console


def test_events_are_shown_and_what_finished_is_returned(tmp_path: Path, shown: Console) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    first, second, third = RUNS
    directory.failure_path(third).parent.mkdir()
    directory.failure_path(third).write_text("Traceback\nit broke")
    events = iter([None, Event(first, "finished"), Event(second, "lost")])
    assert command.watch_suite(directory, SUITE, events) == [first]
    text = shown.export_text()
    assert f"failed before {third.id}: it broke (--retry)" in text
    assert f"finished {first.id}" in text
    assert f"lost {second.id}: its worker died" in text
    assert "1 of 3" in text


def test_runs_under_way_are_described_and_ended_ones_are_not(tmp_path: Path) -> None:
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    assert command._under_way(directory, SUITE) == "tiny"
    for run, done in zip(RUNS, (False, True, False), strict=True):
        place = directory.run_path(run)
        place.mkdir(parents=True)
        write_json(place / "manifest.json", {"experiment": "lock", "spec": {}})
        row = {"iteration": 1, "online_steps": 1500, "eval_return": 0.25}
        append_line(place / "records.jsonl", json.dumps(row))
        if done:
            ended = {"solved": False, "eval_return": 0.25, "online_steps": 1500, "wall_seconds": 1}
            write_json(place / "summary.json", ended)
    directory.failure_path(RUNS[2]).parent.mkdir()
    directory.failure_path(RUNS[2]).write_text("it broke")
    assert command._under_way(directory, SUITE) == "hyq 1,500 samples, return 0.25"


def test_without_workers_or_without_ray_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HyqError, match="workers must be at least 1"):
        command.Launch(workers=0)
    monkeypatch.delitem(sys.modules, "hyq.runs.launch_ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(HyqError, match=r"pip install 'hyq\[ray\]'"):
        command._pool(Path(), command.Launch(ray="local"))
