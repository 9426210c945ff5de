"""What several tests of suites compare with: the same runs, one after another and undisturbed."""

from pathlib import Path
from typing import Any

import pytest

from hyq.runs import lock
from hyq.runs.records import RunDirectory
from tests.runs.tiny_suite import RUNS


def numbers(path: Path) -> dict[str, Any]:
    """Everything a suite recorded except how long it took."""
    found = {}
    for spec in RUNS:
        run = RunDirectory.open(path / "runs" / spec.id)
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in run.rows]
        assert run.summary is not None
        found[spec.id] = rows, {k: v for k, v in run.summary.items() if k != "wall_seconds"}
    return found


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("undisturbed")
    for spec in RUNS:
        list(lock.start(spec, path / "runs" / spec.id))
    return numbers(path)
