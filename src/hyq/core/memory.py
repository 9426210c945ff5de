"""How the process holds its memory."""

import ctypes
import re
import sys
from pathlib import Path

from hyq.core.errors import HyqError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Let the C library keep the memory of arrays that are gone for those to come.

    It otherwise gives back each large array as soon as it is freed, and the system gives the next
    one out page by page: of a gradient step through convolutions that was a third of the time.
    Where the library is not glibc nothing happens.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 2**30)
        library.mallopt(_TRIM_THRESHOLD, 2**30)


def check_room(size: int, what: str, remedy: str) -> None:
    """Raise where `size` bytes would take more than half of the memory that is free."""
    try:
        about = Path("/proc/meminfo").read_text()
    except OSError:  # no Linux: it remains to be seen
        return
    found = re.search(r"MemAvailable:\s+(\d+)", about)
    if found and 2 * size > (free := 1024 * int(found[1])):
        raise HyqError(
            f"{what} would take {size / 2**30:.1f} GB of the {free / 2**30:.1f} GB of memory that "
            f"are free: {remedy}"
        )
