"""Files that people name on a command line: read as text, up to a size that no such file has.

A device such as /dev/zero never ends, and a mistaken path may lead to a disk image.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

LARGEST_BYTES = 4 * 2**20


def text(path: Path, *, largest: int = LARGEST_BYTES) -> str:
    """Raises OSError, or UnicodeDecodeError if it is not text."""
    with path.open("rb") as file:
        return text_of(file, str(path), largest=largest)


def text_of(file: BinaryIO, name: str, *, largest: int = LARGEST_BYTES) -> str:
    """The same of an open file."""
    content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return content.decode()
