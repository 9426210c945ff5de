"""Every kind of run, started and resumed the same way."""

from collections.abc import Iterator
from pathlib import Path

from hyq.core.errors import HyqError
from hyq.experiments import deep, lock
from hyq.experiments.deep import DeepRun
from hyq.experiments.records import RunDirectory
from hyq.experiments.specs import LockRun

Run = LockRun | DeepRun
Progress = lock.Progress | deep.Progress


def start(spec: Run, out: Path) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    return lock.start(spec, out) if isinstance(spec, LockRun) else deep.start(spec, out)


def resume(out: Path) -> Iterator[Progress]:
    """Go on with an interrupted run, exactly where its last checkpoint left it."""
    experiment = RunDirectory.open(out).manifest.get("experiment")
    if experiment not in ("lock", "deep"):
        raise HyqError(f"{out} is not a run that can be resumed: it is {experiment!r}")
    return lock.resume(out) if experiment == "lock" else deep.resume(out)
