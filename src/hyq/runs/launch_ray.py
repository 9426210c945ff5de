"""Running a suite on a Ray cluster, with no file system shared between its machines.

Each run is one task. After every iteration the task posts the files that changed to a mailbox
beside the suite's directory, so that records stream in and, when a worker dies, Ray's retry of the
task fetches the posted checkpoint and continues from it on whatever machine is free.
"""

import math
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hyq.core.files import lock_directory, locked_directory, write_bytes
from hyq.policy import NEXT, WEIGHTS
from hyq.runs.launch import execute
from hyq.runs.suites import Run

Files = dict[str, bytes]
RETRIES = 5
SCRATCH = "hyq-ray-"
POSTED_LAST = ("state.safetensors", "summary.json")
"""Files that declare the others valid, and so must never arrive before them."""


class Cluster:
    """The cluster at an address, or one started on this machine."""

    size = math.inf  # Ray queues what it has no core for

    def __init__(self, path: Path, address: str | None) -> None:
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():  # Ray's own ends the process at once
                signal.signal(number, handler)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._mailbox = Mailbox.options(scheduling_strategy=here).remote(path)  # type: ignore[attr-defined]
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(execute_remotely)

    def start(self, run: Run) -> Any:
        """Submit a run as a task."""
        return self._task.remote(self._mailbox, run)

    def ended(self, tasks: Collection[Any], beat: float) -> Collection[Any]:
        """Wait for tasks to end."""
        return ray.wait(list(tasks), timeout=beat)[0]

    def close(self) -> None:
        """Leave the cluster, or end the one that was started."""
        ray.shutdown()
        sweep()


@ray.remote
class Mailbox:
    """Keeps the runs' files on the machine where the suite was started."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fetch(self, run: str) -> Files:
        """Return every file of a run, to continue from."""
        home = self._path / "runs" / run
        found = [p for p in home.rglob("*") if p.is_file()] if home.exists() else []
        return {f"runs/{run}/{p.relative_to(home)}": p.read_bytes() for p in found}

    def post(self, files: Files, gone: Collection[str] = ()) -> None:
        """Write files, those that declare others valid after them; then remove what is gone."""
        weights = {name for name in files if name.endswith(WEIGHTS)}
        last = {name for name in files if name.endswith(POSTED_LAST)}
        for name in weights:  # as when a policy is saved, which is whole at any moment
            self._write(self._next(name), files[name])
        for name in sorted(files.keys() - weights - last):  # manifests before records
            self._write(self._path / name, files[name])
        for name in weights:
            self._next(name).replace(self._path / name)
        for name in sorted(last):
            self._write(self._path / name, files[name])
        for name in gone:
            (self._path / name).unlink(missing_ok=True)

    def _next(self, name: str) -> Path:
        return (self._path / name).with_name(NEXT)

    def _write(self, target: Path, content: bytes) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, content)


def sweep() -> None:
    """Remove what killed workers left behind: a lock ends with its process, however it ends."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with (
            suppress(OSError),
            locked_directory(path),
        ):  # in use, another user's, or removed meanwhile
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Make a directory for a task, which `sweep` leaves alone while the task's worker lives."""
    sweep()
    while True:
        path = Path(tempfile.mkdtemp(prefix=SCRATCH))
        with suppress(FileNotFoundError):  # swept before it was locked
            descriptor = lock_directory(path, wait=True)
            break
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def execute_remotely(mailbox: Any, spec: Run) -> None:
    """Run or resume one spec in a scratch directory, posting what changes."""
    with scratch_directory() as root:
        posted: dict[str, int] = {}
        for name, content in ray.get(mailbox.fetch.remote(spec.id)).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
            posted[name] = (root / name).stat().st_mtime_ns

        def post_changes() -> None:
            found = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}
            stamps = {name: path.stat().st_mtime_ns for name, path in found.items()}
            changed = {n: found[n].read_bytes() for n, at in stamps.items() if posted.get(n) != at}
            gone = posted.keys() - stamps.keys()
            ray.get(mailbox.post.remote(changed, sorted(gone)))
            posted.clear()
            posted.update(stamps)

        execute(root, spec, after_each=post_changes)
        post_changes()
