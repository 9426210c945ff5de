"""Running a suite on a Ray cluster, with no file system shared between its machines.

Each run is one task. After every iteration the task posts the files that changed to a mailbox
beside the suite's directory, so that records stream in and, when a worker dies, Ray's retry of the
task fetches the posted checkpoint and continues from it on whatever machine is free.
"""

import math
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hyq.core.files import write_bytes
from hyq.runs.launch import execute
from hyq.runs.suites import Run

Files = dict[str, bytes]
RETRIES = 5
POSTED_LAST = ("state.safetensors", "summary.json")
"""Files that declare the others valid, and so must never arrive before them."""


class Cluster:
    """The cluster at an address, or one started on this machine."""

    size = math.inf  # Ray queues what it has no core for

    def __init__(self, path: Path, address: str | None) -> None:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
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
        for name in sorted(files, key=lambda name: name.endswith(POSTED_LAST)):
            target = self._path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(target, files[name])
        for name in gone:
            (self._path / name).unlink(missing_ok=True)


def execute_remotely(mailbox: Any, spec: Run) -> None:
    """Run or resume one spec in a scratch directory, posting what changes."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
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
