"""Recorded cases on disk: one world per line, with kube-scheduler's answers, compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("cases")


def load(folder: Path = FOLDER) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            yield from (json.loads(line) for line in lines)


def save(path: Path, answered: Iterable[dict[str, Any]]) -> None:
    """The same worlds give the same bytes: no time and no file name in the compressed file."""
    lines = "".join(json.dumps(world, sort_keys=True, separators=(",", ":")) + "\n" for world in answered)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0))
