"""The process: a child reserves the GPU and ends, then this one waits for SIGTERM.

What the child loads (TLS, HTTP, the driver) goes with it: a process that waits for days holds little more than the
interpreter. Exit codes: 0 after SIGTERM or SIGINT, 1 if the GPU could not be reserved; then the kubelet starts the
container again.
"""

from __future__ import annotations

import os
import signal
import sys

_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: os._exit(0))
    child = os.fork()
    if child == 0:
        _reserve()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(1)
    while True:
        signal.pause()


def _reserve() -> None:
    """In the child, which loads what the parent does not need."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    code = 1
    try:
        import ctypes
        import time

        from apportion.reserve import attempts

        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)

        code = 0 if attempts.reserve(os.environ, time.sleep) else 1
    except Exception:  # noqa: BLE001  a fork ends here, whatever happens, and says why
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
