"""Files that are complete at any moment: written under a temporary name, then renamed."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Readers see the old content or the new one. The temporary name starts with a dot: folder watchers skip it."""
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
