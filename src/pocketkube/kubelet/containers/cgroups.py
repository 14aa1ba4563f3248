"""The control-group folders of a node: a folder per container that runs, with its process in `cgroup.procs`.

The node agent decides from them whether processes of a pod still run, so a folder stays as long as its process.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path


class Cgroups:
    """The tree of one node, laid out as the cgroupfs driver does."""

    def __init__(self, root: Path) -> None:
        self._root = root / "sys/fs/cgroup/kubepods"
        self._root.mkdir(parents=True, exist_ok=True)

    def add(self, uid: str, container_id: str, pid: int) -> None:
        folder = self._pod(uid) / container_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(f"{pid}\n")

    def remove(self, uid: str, container_id: str) -> None:
        shutil.rmtree(self._pod(uid) / container_id, ignore_errors=True)
        with contextlib.suppress(OSError):  # other containers of the pod still run
            self._pod(uid).rmdir()

    def _pod(self, uid: str) -> Path:
        return self._root / f"pod{uid}"
