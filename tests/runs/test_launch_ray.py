"""A suite on a real local Ray cluster, with a worker killed in the middle."""

import os
import signal
import subprocess
import sys
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


ASKED_TO_END = """
import os, signal, sys
from pathlib import Path
from hyq.cli import as_control_c
from hyq.runs.launch import SuiteDirectory, launch
from hyq.runs.launch_ray import Cluster
from tests.runs.tiny_suite import SUITE
as_control_c()
directory = SuiteDirectory.prepare(Path(sys.argv[1]), SUITE)
try:
    for _ in launch(directory, SUITE.runs, Cluster(directory.path, None)):
        os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    print("as Control-C")
"""


def test_a_suite_on_ray_ends_on_sigterm_as_on_control_c(tmp_path: Path) -> None:
    """Ray has a handler of its own, which ends the process with a page of addresses."""
    surroundings = {**os.environ, "RAY_TMPDIR": tempfile.gettempdir(), "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", ASKED_TO_END, str(tmp_path / "suite")],
        cwd=Path(__file__).parents[2],
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "as Control-C\n"), ended.stderr
