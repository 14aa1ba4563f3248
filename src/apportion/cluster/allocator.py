"""How a server gives memory back that it needed for a few large requests.

Python takes memory for small objects in arenas of 1 MiB, and gives one back when nothing in it is used: a few objects
that stay hold what a large request needed for good. glibc gives back single pages, when it is told to (`malloc_trim`).
And it keeps freed blocks of up to 32 MiB for later, once the first one was freed, unless the size is set.
"""

from __future__ import annotations

import ctypes
import os
import sys

LARGE_BLOCK = 128 * 1024
_M_MMAP_THRESHOLD = -3
_PYTHON_ALLOCATOR = "PYTHONMALLOC"


def give_back_large_blocks() -> None:
    """For this process, from now on; does nothing where the C library is another one."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK)


def start_with_system_allocator() -> None:
    """Start this program again, once, as the same process, with all objects allocated by the C library."""
    if sys.platform != "linux" or os.environ.pop(_PYTHON_ALLOCATOR, None) == "malloc":
        return
    environment = os.environ | {_PYTHON_ALLOCATOR: "malloc"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606
