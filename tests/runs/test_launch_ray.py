"""A suite on a real local Ray cluster, with a worker killed in the middle."""

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hyq.runs.launch import SuiteDirectory, launch
from hyq.runs.launch_ray import Cluster
from tests.runs.conftest import numbers
from tests.runs.tiny_suite import RUNS, SUITE


def ray_workers() -> list[int]:
    """Processes that execute one of our tasks; Ray names them after it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().startswith(b"ray::execute_remotely"):
                found.append(int(entry.parts[2]))
        except OSError:
            continue
    return found


@pytest.mark.filterwarnings("default")
def test_a_killed_ray_worker_is_resumed_elsewhere(
    tmp_path: Path, undisturbed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # the paths of its sockets are short
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    directory = SuiteDirectory.prepare(tmp_path / "suite", SUITE)
    outcomes, killed = [], False
    for event in launch(directory, SUITE.runs, Cluster(directory.path, None), beat=0.02):
        if not killed and any(directory.progress(run) for run in RUNS) and ray_workers():
            os.kill(ray_workers()[0], signal.SIGKILL)
            killed = True
        if event:
            outcomes.append(event.outcome)
    assert killed
    assert outcomes == ["finished"] * len(RUNS)
    assert numbers(directory.path) == undisturbed
    assert not list(directory.path.rglob("*/checkpoint/*")), "what a run removes is removed here"
    assert not list(scratch.glob("hyq-ray-*")), "nor is anything of a killed worker left"
