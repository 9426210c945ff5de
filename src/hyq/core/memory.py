"""How the process holds its memory."""

import ctypes
import sys

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
