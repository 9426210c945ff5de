"""How the process holds its memory."""

import ctypes
import re
import resource
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


def return_freed_memory() -> None:
    """Give back the memory of small arrays that are gone; glibc keeps what lies between others."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def check_room(size: int, what: str, remedy: str) -> None:
    """Raise where `size` bytes would take more than half of the memory that is free."""
    free = _free()
    if free is not None and 2 * size > free:
        raise HyqError(
            f"{what} would take {size / 2**30:.1f} GB of the {free / 2**30:.1f} GB of memory that "
            f"are free: {remedy}"
        )


def _free() -> int | None:
    """Return how many bytes the machine has, and the process may take; None where none can tell."""
    try:
        about = Path("/proc/meminfo").read_text() + Path("/proc/self/status").read_text()
    except OSError:  # no Linux: it remains to be seen
        return None
    free, used = (
        1024 * int(found[1]) if (found := re.search(rf"{name}:\s+(\d+)", about)) else 0
        for name in ("MemAvailable", "VmSize")
    )
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return free if limit == resource.RLIM_INFINITY else min(free, limit - used)
