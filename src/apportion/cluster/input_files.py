"""Files that people name on a command line: read as text, up to a size that no such file has.

A device such as /dev/zero never ends, and a mistaken path may lead to a disk image.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

LARGEST_BYTES = 4 * 2**20


def text(path: Path) -> str:
    """Raises OSError, or UnicodeDecodeError if it is not text."""
    with path.open("rb") as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content.decode()
