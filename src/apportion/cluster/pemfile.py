"""A file name for bytes that must not touch a disk: ssl reads certificates and keys from files only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def readable(data: bytes) -> Iterator[str]:
    """A path that reads as `data` while the block runs: in memory where the system can, else private."""
    if hasattr(os, "memfd_create"):  # works on read-only file systems, too
        descriptor = os.memfd_create("pem")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(data)
        file.flush()
        yield file.name
