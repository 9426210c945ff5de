"""Runs on a full disk: one line, nothing half-written, and they go on when there is space."""

import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hyq.core.errors import HyqError
from hyq.runs import lock, runner
from hyq.runs.records import RunDirectory
from tests.runs.test_lock_runs import SMALL
from tests.runs.test_runner import cartpole_data, spec_of, timeless

Resize = Callable[[int], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Resize]]:
    """A small disk of its own, and what sets its size in kilobytes."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> bool:
        words = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    if not mount("size=8k"):
        pytest.skip("only root can mount a disk")

    def resize(size: int) -> None:
        assert mount(f"remount,size={size}k")

    try:
        yield place, resize
    finally:
        subprocess.run(["umount", str(place)], check=True)


def begin(kind: str, data: Path, out: Path) -> None:
    """Begin a run, or resume it, to its end."""
    if kind == "lock":
        list(lock.resume(out) if out.exists() else lock.start(SMALL, out))
    elif out.exists():
        list(runner.resume(out, checkpoint_seconds=0))
    else:
        keeps = kind == "deep, kept"
        spec = spec_of(str(data))
        list(runner.start(spec, out, checkpoint_seconds=0, keep_checkpoint=keeps))


def came_to(out: Path) -> Any:
    run = RunDirectory.open(out)
    assert run.summary is not None
    learned = sorted(p for p in out.rglob("*.safetensors") if "checkpoint" not in p.parts)
    rows = [timeless(row) for row in run.rows]
    return rows, timeless(run.summary), [path.read_bytes() for path in learned]


@pytest.mark.parametrize("kind", ["lock", "deep", "deep, kept"])
def test_a_run_goes_on_when_space_is_freed(
    tmp_path: Path, disk: tuple[Path, Resize], kind: str
) -> None:
    data = tmp_path / "data"
    cartpole_data().save(data)
    begin(kind, data, tmp_path / "whole")
    place, resize = disk
    out, size, stops = place / "run", 8, list[str]()
    while not (out / "summary.json").exists():
        try:
            begin(kind, data, out)
        except HyqError as error:
            stops.append(str(error))
            left = [path.name for path in place.rglob(".*")], (out / "summary.json").exists()
            assert left == ([], False)
            resize(size := size + 12)
    assert len(stops) > 1
    assert all("no space left" in said for said in stops)
    assert came_to(out) == came_to(tmp_path / "whole")
    assert (out / "checkpoint").exists() == (kind == "deep, kept")


def test_a_file_that_grows_too_large_is_one_line_too(tmp_path: Path) -> None:
    steps = lock.start(SMALL, tmp_path / "run")
    next(steps)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(HyqError, match="no space left"):
            list(steps)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    begin("lock", tmp_path, tmp_path / "run")
    begin("lock", tmp_path, tmp_path / "whole")
    assert came_to(tmp_path / "run") == came_to(tmp_path / "whole")
