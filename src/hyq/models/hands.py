"""A second pair of hands: jobs and errands that this thread and a helper share.

PyTorch lets go of Python's lock while it computes, so jobs made of its operations run on two cores
at once. Shared out like this, no operation waits for the slower half of itself, and on two threads
each runs as it would on one: the results are the same to the bit, whoever does a job.
"""

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch

Job = Callable[[], None]
Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Work that can be put aside wherever it yields, and returns its result."""


class Hands:
    """This thread and, where PyTorch may use more than one, a helper.

        with hands as later:
            later(job)  # the helper may begin at once; without one, this thread does it now
            ...         # this thread's own work
        # here every job is done

    Each of the two computes with half of PyTorch's threads. Blocks may lie within each other; the
    inner one ends when all jobs are done. What a job raises is raised where the block ends.

    What is not needed before the block ends is an errand: the helper goes on with it whenever there
    is no job, and puts it aside at its next step when there is one.

        errand = hands.errand(steps)
        ...
        errand.result()  # whatever is left of it is done now
    """

    def __init__(self, helped: bool = True) -> None:
        """Take a helper where PyTorch has threads for one, unless told to work alone."""
        self._threads = torch.get_num_threads()
        self.helped = helped and self._threads > 1
        self._before = self._threads
        """PyTorch's threads when the outermost block began."""
        self._depth = self._unfinished = 0
        self._work = _Work()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        if self.helped:
            helper = threading.Thread(
                target=_help, args=(self._work, self._done, self._threads // 2), daemon=True
            )
            helper.start()
            weakref.finalize(self, _send_home, self._work, helper)  # at the program's end, too

    def __enter__(self) -> Callable[[Job], None]:
        """Begin a block; return what hands out jobs."""
        if self.helped and not self._depth:
            self._before = torch.get_num_threads()
            torch.set_num_threads(self._threads // 2)
        self._depth += 1
        return self.later

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Help until every job is done, even if interrupted; raise what one of them raised."""
        failed: BaseException | None = None
        while self._unfinished:
            try:
                if (job := self._work.take_job()) is not None:
                    _do(job, self._done)
                found = self._done.get()
            except KeyboardInterrupt as interruption:
                failed = interruption
                continue
            failed = failed or found
            self._unfinished -= 1
        self._depth -= 1
        if self.helped and not self._depth:
            torch.set_num_threads(self._before)
        if failed is not None and (error is None or isinstance(failed, KeyboardInterrupt)):
            raise failed

    def later(self, job: Job) -> None:
        """Hand out a job, within a block."""
        if self.helped:
            self._work.add_job(job)
            self._unfinished += 1
        else:
            job()

    def errand(self, steps: Steps[Result]) -> "Errand[Result]":
        """Begin something that is needed later; without a helper, when its result is."""
        errand = Errand(self, steps)
        if self.helped:
            self._work.add_errand(errand)
        return errand

    def finish(self, errand: "Errand[Any]") -> None:
        """Do what is left of an errand; while the helper is at it, go on with others."""
        with self:
            while not errand.over:
                if not errand.walk(wait=False) and not self._work.walk_errand():
                    errand.walk()


class Errand(Generic[Result]):
    """Work in steps, done by whoever has time, one step at a time."""

    def __init__(self, hands: Hands, steps: Steps[Result]) -> None:
        """Take the steps; `Hands.errand` does it."""
        self._hands, self._steps = hands, steps
        self._walking = threading.Lock()
        self.over = False
        self._results: list[Result] = []
        self._error: BaseException | None = None

    def walk(self, wait: bool = True) -> bool:
        """Take one step, and tell whether it was taken: without waiting, not while another is."""
        if not self._walking.acquire(blocking=wait):
            return False
        try:
            if not self.over:
                next(self._steps)
        except StopIteration as end:
            self._results.append(end.value)
            self.over = True
        except BaseException as error:  # whoever asks for the result raises it
            self._error = error
            self.over = True
        finally:
            self._walking.release()
        return True

    def result(self) -> Result:
        """Do what is left, and return the result or raise what a step raised."""
        self._hands.finish(self)
        if self._error is not None:
            raise self._error
        return self._results[0]

    def give_up(self) -> None:
        """Take no more steps."""
        with self._walking:
            self.over = True


class _Work:
    """What there is to do: jobs first, then errands."""

    def __init__(self) -> None:
        self._tickets: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """At least one for everything there is to do; False ends the work."""
        self._jobs: deque[Job] = deque()
        self._errands: deque[Errand[Any]] = deque()

    def add_job(self, job: Job) -> None:
        self._jobs.append(job)
        self._tickets.put(True)

    def add_errand(self, errand: Errand[Any]) -> None:
        self._errands.append(errand)
        self._tickets.put(True)

    def wait(self) -> bool:
        """Wait until there may be something to do; False at the end."""
        return self._tickets.get()

    def take_job(self) -> Job | None:
        try:
            return self._jobs.popleft()
        except IndexError:
            return None

    def walk_errand(self) -> bool:
        """Take one step of the oldest errand, if there is one."""
        try:
            errand = self._errands.popleft()
        except IndexError:
            return False
        errand.walk()
        if not errand.over:
            self._errands.appendleft(errand)
            self._tickets.put(True)
        return True

    def end(self) -> None:
        self._jobs.clear()
        self._errands.clear()
        self._tickets.put(False)


def _do(job: Job, done: "queue.SimpleQueue[BaseException | None]") -> None:
    try:
        job()
    except BaseException as error:  # whoever waits for the job raises it
        done.put(error)
    else:
        done.put(None)


def _help(work: _Work, done: "queue.SimpleQueue[BaseException | None]", threads: int) -> None:
    """Do jobs and errands until the end; the number of threads is each thread's own."""
    torch.set_num_threads(threads)
    while work.wait():
        if (job := work.take_job()) is not None:
            _do(job, done)
        else:
            work.walk_errand()
        del job  # what it holds is not kept until the next one comes


def _send_home(work: _Work, helper: threading.Thread) -> None:
    """End the work, and wait until nobody is at it: a program cannot end within a step."""
    work.end()
    if threading.current_thread() is not helper:
        helper.join()
