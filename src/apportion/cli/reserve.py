"""`apportion reserve`: holds one GPU that pods share.

Without options the command does not get here: `apportion.__main__` starts it without this package. This is its help.
"""

from __future__ import annotations


def command() -> None:
    """Hold one GPU that pods share: write its UUID on the pod of this process, and wait for SIGTERM."""
    from apportion.reserve import process

    process.main()
