"""What a run needs of its process: threads, and signals that end it with a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let PyTorch compute on so many threads, whatever it was set to before.

    Runs are then the same on any number of cores, and two of them do not slow each other down.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Note SIGINT, SIGTERM and SIGHUP, so that a run ends after its step with a checkpoint.

    A second signal ends it at once. Off the main thread, where signals cannot be handled, nothing
    changes.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, _frame: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    noted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # What is ignored stays so: workers leave Ctrl-C to their parent, and nohup ignores SIGHUP.
    heeded = [n for n in noted if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
