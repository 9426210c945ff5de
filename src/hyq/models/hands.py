"""A second pair of hands: jobs that this thread and a helper take from one list.

PyTorch lets go of Python's lock while it computes, so jobs made of its operations run on two cores
at once. Shared out like this, no operation waits for the slower half of itself, and on two threads
each runs as it would on one: the results are the same to the bit, whoever does a job.
"""

import queue
import threading
import weakref
from collections.abc import Callable
from types import TracebackType

import torch

Job = Callable[[], None]


class Hands:
    """This thread and, where PyTorch may use more than one, a helper.

        with hands as later:
            later(job)  # the helper may begin at once; without one, this thread does it now
            ...         # this thread's own work
        # here every job is done

    Each of the two computes with half of PyTorch's threads. Blocks may lie within each other; the
    inner one ends when all jobs are done. Jobs run without recording gradients, and what one raises
    is raised where the block ends.
    """

    def __init__(self, helped: bool = True) -> None:
        """Take a helper where PyTorch has threads for one, unless told to work alone."""
        self._threads = torch.get_num_threads()
        self.helped = helped and self._threads > 1
        self._before = self._threads
        """PyTorch's threads when the outermost block began."""
        self._depth = self._unfinished = 0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        if self.helped:
            helper = threading.Thread(
                target=_help, args=(self._jobs, self._done, self._threads // 2), daemon=True
            )
            helper.start()
            weakref.finalize(self, self._jobs.put, None)  # sends the helper home

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
                if (job := _next(self._jobs)) is not None:
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
            self._jobs.put(job)
            self._unfinished += 1
        else:
            with torch.no_grad():
                job()


def _next(jobs: "queue.SimpleQueue[Job | None]") -> Job | None:
    try:
        return jobs.get_nowait()
    except queue.Empty:
        return None


def _do(job: Job, done: "queue.SimpleQueue[BaseException | None]") -> None:
    try:
        with torch.no_grad():
            job()
    except BaseException as error:  # whoever waits for the job raises it
        done.put(error)
    else:
        done.put(None)


def _help(
    jobs: "queue.SimpleQueue[Job | None]",
    done: "queue.SimpleQueue[BaseException | None]",
    threads: int,
) -> None:
    """Do jobs until there is None; the number of threads is each thread's own."""
    torch.set_num_threads(threads)
    while (job := jobs.get()) is not None:
        _do(job, done)
        del job  # what it holds is not kept until the next one comes
