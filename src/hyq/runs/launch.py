"""Running a suite on all cores, so that nothing is lost and nothing is done twice.

A run's directory is the only truth: a finished run has a summary, an unfinished one a checkpoint,
and one that failed leaves its error beside them. Killing anything at any moment therefore costs at
most the work since the last checkpoint of the runs under way, and starting again continues from it.
"""

import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from hyq.core.errors import HyqError
from hyq.core.files import new_directory, read_json, write_bytes, write_json
from hyq.runs import lock, runner
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import Progress, RunDirectory, circumstances
from hyq.runs.suites import Run, Suite

Outcome = Literal["finished", "failed", "lost"]
"""A run is lost when its worker died; it is started again ..."""
MOST_LOSSES = 3
"""... unless it keeps killing its workers."""


@dataclass(frozen=True)
class SuiteDirectory:
    """A suite on disk."""

    path: Path

    @classmethod
    def prepare(cls, path: Path, suite: Suite) -> "SuiteDirectory":
        """Begin the suite in a new directory, or open the one where it was begun.

        A suite that has grown since, and still holds every run that it had, takes over.
        """
        content = {"suite": suite.name, "title": suite.title, "runs": [r.id for r in suite.runs]}
        if not path.exists():
            with new_directory(path) as draft:
                write_json(draft / "suite.json", content | circumstances())
            return cls(path)
        begun = read_json(path / "suite.json")
        if begun.get("suite") != suite.name or not set(begun["runs"]) <= set(content["runs"]):
            raise HyqError(f"{path} holds another suite: choose another directory")
        if begun["runs"] != content["runs"]:
            write_json(path / "suite.json", begun | content)
        return cls(path)

    def run_path(self, spec: Run) -> Path:
        """Where a run lives."""
        return self.path / "runs" / spec.id

    def failure_path(self, spec: Run) -> Path:
        """Where a run's error is kept."""
        return self.path / "failures" / f"{spec.id}.txt"

    def summary(self, spec: Run) -> dict[str, Any] | None:
        """Return the result of a run, if it has finished."""
        return RunDirectory(self.run_path(spec)).summary

    def failure(self, spec: Run) -> str | None:
        """Return the error a run ended with, if it did."""
        path = self.failure_path(spec)
        return path.read_text() if path.exists() else None

    def progress(self, spec: Run) -> dict[str, Any] | None:
        """Return the newest record of a run under way."""
        rows = RunDirectory(self.run_path(spec)).rows
        return rows[-1] if rows else None


@dataclass(frozen=True)
class Event:
    """A change that a watcher may want to show."""

    spec: Run
    outcome: Outcome


def pending(directory: SuiteDirectory, suite: Suite, retry: bool) -> list[Run]:
    """List the runs still to do; one that failed waits until a retry is asked for.

    An error is forgotten with a retry, or when its run has finished after all.
    """
    todo = []
    for run in suite.runs:
        finished = directory.summary(run) is not None
        if retry or finished:
            directory.failure_path(run).unlink(missing_ok=True)
        if not finished and directory.failure(run) is None:
            todo.append(run)
    return todo


def launch(
    directory: SuiteDirectory, todo: Sequence[Run], workers: int, beat: float = 0.5
) -> Iterator[Event | None]:
    """Run everything on so many processes; yield what happened, or None at every beat.

    A dead worker takes its whole pool with it, so each has a pool to itself: a run that kills its
    worker costs the others nothing.
    """
    waiting = list(reversed(todo))
    losses: Counter[str] = Counter()
    idle = [_worker() for _ in range(workers)]
    under_way: dict[Future[Outcome], tuple[Run, ProcessPoolExecutor]] = {}
    try:
        while waiting or under_way:
            while waiting and idle:
                worker = idle.pop()
                try:
                    future = worker.submit(execute, directory.path, waiting[-1])
                except BrokenProcessPool:  # it died while it had nothing to do
                    idle.append(_worker())
                else:
                    under_way[future] = waiting.pop(), worker
            done, _ = wait(under_way, timeout=beat, return_when=FIRST_COMPLETED)
            if not done:
                yield None
            for future in done:
                run, worker = under_way.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    worker = _worker()
                    losses[run.id] += 1
                    outcome = "lost" if losses[run.id] <= MOST_LOSSES else "failed"
                    if outcome == "lost":
                        waiting.append(run)
                    else:
                        _record_failure(directory, run, "its worker died again and again")
                idle.append(worker)
                yield Event(run, outcome)
    finally:
        for worker in (*idle, *(worker for _, worker in under_way.values())):
            for process in list((worker._processes or {}).values()):
                process.terminate()
            worker.shutdown(wait=True, cancel_futures=True)


def execute(path: Path, spec: Run, after_each: Callable[[], None] = lambda: None) -> Outcome:
    """Start or resume one run, to its end; called in a worker."""
    directory = SuiteDirectory(path)
    if directory.summary(spec):  # by a worker that died before it could say so
        return "finished"
    out = directory.run_path(spec)
    try:
        steps: Iterator[Progress]
        if out.exists():
            steps = lock.resume(out) if isinstance(spec, LockRun) else runner.resume(out)
        else:
            steps = lock.start(spec, out) if isinstance(spec, LockRun) else runner.start(spec, out)
        for _ in steps:
            after_each()
    except Exception as error:  # a failed run must not end the suite, and is shown by name
        reason = str(error) if isinstance(error, HyqError) else traceback.format_exc()
        _record_failure(directory, spec, reason)
        return "failed"
    return "finished"


def _record_failure(directory: SuiteDirectory, spec: Run, reason: str) -> None:
    path = directory.failure_path(spec)
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, reason.encode())


def _worker() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_begin_worker, initargs=(os.getpid(),)
    )


def _begin_worker(parent: int) -> None:
    """End this worker when its parent is killed, so that a suite started again finds no rival."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=watch, daemon=True).start()
