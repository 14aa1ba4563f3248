"""Makes the C library give large blocks of memory back.

By default glibc keeps freed blocks of up to 32 MiB for later once the first one was freed. A server that reads large
bodies now and then would hold them for good.
"""

from __future__ import annotations

import ctypes
import sys

LARGE_BLOCK = 128 * 1024
_M_MMAP_THRESHOLD = -3


def give_back_large_blocks() -> None:
    """For this process, from now on; does nothing where the C library is another one."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK)
