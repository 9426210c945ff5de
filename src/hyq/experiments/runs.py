"""Every kind of run, started and resumed the same way."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hyq.core.errors import HyqError
from hyq.experiments import deep, lock, rnd, trainings
from hyq.experiments.deep import DeepRun
from hyq.experiments.records import RunDirectory
from hyq.experiments.rnd import RNDRun
from hyq.experiments.specs import LockRun

Run = LockRun | DeepRun | RNDRun
Progress = lock.Progress | trainings.Progress


def start(spec: Run, out: Path) -> Iterator[Progress]:
    """Run `spec` into the new directory `out`."""
    if isinstance(spec, LockRun):
        return lock.start(spec, out)
    return deep.start(spec, out) if isinstance(spec, DeepRun) else rnd.start(spec, out)


def resume(out: Path) -> Iterator[Progress]:
    """Go on with an interrupted run, exactly where its last checkpoint left it."""
    experiment = RunDirectory.open(out).manifest.get("experiment")
    resumes: dict[str | None, Callable[[Path], Iterator[Progress]]] = {
        "lock": lock.resume,
        "deep": deep.resume,
        "rnd": rnd.resume,
    }
    if experiment not in resumes:
        raise HyqError(f"{out} is not a run that can be resumed: it is {experiment!r}")
    return resumes[experiment](out)
