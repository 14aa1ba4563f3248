"""Paths that a pod names, resolved inside one folder.

A pod chooses many paths: of host folders, in volumes, in its own files. Each is resolved here as if its folder were
the root directory: `..` and absolute links end at the folder, wherever they point. Nothing that a pod author can run
creates a link, so a path does not change between this check and its use; it is still resolved anew for every use.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from pathlib import Path
from typing import IO

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_LINKS = 40  # as in the kernel


def resolve(folder: Path, inner: str) -> Path:
    """Where `inner` leads in `folder`, all links followed; it need not exist."""
    root = Path(os.path.realpath(folder))
    done: list[str] = []
    left = deque(inner.split("/"))
    links = 0
    while left:
        part = left.popleft()
        if part == "..":
            done = done[:-1]
        if part in ("", ".", ".."):
            continue
        try:
            target = os.readlink(root.joinpath(*done, part))  # noqa: PTH115  Path.readlink makes a path of it
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            done = []
        left.extendleft(reversed(target.split("/")))
    return root.joinpath(*done)


def leaves(folder: Path, inner: str) -> bool:
    """Whether `inner`, with its links as they are, ends outside the folder."""
    real = Path(os.path.realpath(folder / inner))
    return not real.is_relative_to(os.path.realpath(folder))


def read_bytes(path: Path, most: int) -> bytes:
    """The beginning of a file."""
    with open_to_read(path) as file:
        return file.read(most)


def open_to_read(path: Path) -> IO[bytes]:
    """A regular file. Anything else is refused: a pipe or a device could block its reader."""
    return os.fdopen(_regular(os.open(path, os.O_RDONLY | _SAFELY)), "rb")


def open_to_write(path: Path, *, append: bool) -> IO[bytes]:
    """A regular file, made if it is missing."""
    how = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    return os.fdopen(_regular(os.open(path, how | _SAFELY, 0o644)), "ab" if append else "wb")


def _regular(descriptor: int) -> int:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EACCES
    raise OSError(number, os.strerror(number))


def has_backstep(path: str) -> bool:
    return ".." in path.split("/")
