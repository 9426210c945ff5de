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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from hyq.core.errors import HyqError
from hyq.core.files import check_plain, new_directory, read_text, write_bytes, write_json
from hyq.runs import lock, runner
from hyq.runs.lock_spec import LockRun
from hyq.runs.records import Progress, RunDirectory, circumstances, read_suite
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
        check_plain(path)
        begun = read_suite(path)
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
        return read_text(path) if path.exists() else None

    def fail(self, spec: Run, reason: str) -> None:
        """Keep the error that a run ended with."""
        self.failure_path(spec).parent.mkdir(exist_ok=True)
        write_bytes(self.failure_path(spec), reason.encode())

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
    """List the runs still to do; one that failed waits until a retry is requested.

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
    directory: SuiteDirectory, todo: Sequence[Run], pool: Any, beat: float = 0.5
) -> Iterator[Event | None]:
    """Run everything in a pool, `Processes` or a cluster; yield what happened, or None at a beat.

    How a run ended stands in its directory. One that left neither result nor error was lost.
    """
    waiting, losses = list(reversed(todo)), Counter[str]()
    under_way: dict[Any, Run] = {}
    with closing(pool):
        while waiting or under_way:
            while waiting and len(under_way) < pool.size:
                run = waiting.pop()
                under_way[pool.start(run)] = run
            ended = pool.ended(under_way.keys(), beat)
            if not ended:
                yield None
            for task in ended:
                run = under_way.pop(task)
                losses[run.id] += 1
                if directory.summary(run) is None and directory.failure(run) is None:
                    if losses[run.id] <= MOST_LOSSES:
                        waiting.append(run)
                        yield Event(run, "lost")
                        continue
                    directory.fail(run, "its worker died again and again")
                yield Event(run, "finished" if directory.summary(run) else "failed")


class Processes:
    """A process for each run: one that dies costs the others nothing."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self._running: dict[int, BaseProcess] = {}

    def start(self, run: Run) -> int:
        """Begin a run in a process of its own."""
        target = get_context("spawn").Process(target=_work, args=(os.getpid(), self.path, run))
        target.start()
        self._running[target.sentinel] = target
        return target.sentinel

    def ended(self, tasks: Collection[int], beat: float) -> Collection[int]:
        """Wait for processes to end."""
        ended = [one for one in wait(tasks, beat) if isinstance(one, int)]
        for one in ended:
            self._running.pop(one).join()
        return ended

    def close(self) -> None:
        """Let what is under way end, with a checkpoint where there can be one."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.join()


def execute(path: Path, spec: Run, after_each: Callable[[], None] = lambda: None) -> None:
    """Start or resume one run, to its end; called in a worker."""
    directory = SuiteDirectory(path)
    if directory.summary(spec):  # by a worker that died before it could say so
        return
    out = directory.run_path(spec)
    try:
        steps: Iterator[Progress]
        if out.exists():
            RunDirectory(out).check_spec(spec.encoded())
            if isinstance(spec, LockRun):
                steps = lock.resume(out)
            else:
                steps = runner.resume(out, trust=spec.code)
        else:
            steps = lock.start(spec, out) if isinstance(spec, LockRun) else runner.start(spec, out)
        for _ in steps:
            after_each()
    except Exception as error:  # a failed run must not end the suite, and is shown by name
        reason = str(error) if isinstance(error, HyqError) else traceback.format_exc()
        directory.fail(spec, reason)


def _work(parent: int, path: Path, spec: Run) -> None:
    """Execute a run, and end when the parent is killed: a suite started again finds no rival."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=watch, daemon=True).start()
    with suppress(KeyboardInterrupt):
        execute(path, spec)
