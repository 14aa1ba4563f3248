"""Do processes of a pod still run? Read from the kernel, independent of the API.

A pod that was deleted by force is gone from the API while its processes go on and hold their slice. Its
cgroup folder is named after its uid: `pod<uid>` with the cgroupfs driver,
`kubepods-...-pod<uid with _>.slice` with the systemd driver; below it there is one per container. In
version 1 the tree repeats in each controller's folder, and a process is in all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from apportion.apis.identities import PodUID

PROCESSES = "cgroup.procs"
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
DEEPEST = 6  # /<controller>/<custom root>/kubepods.slice/kubepods-<qos>.slice/<pod>: pods do not lie deeper


class Cgroups:
    def __init__(self, root: Path) -> None:
        self._root = root

    def running(self, pod_uid: PodUID, container_id: str | None = None) -> bool:
        """Is there a process of this pod, or of one container of it (id without its scheme)?"""
        return any(self._holds_process(folder, container_id) for folder in self._pod_folders(pod_uid))

    def _pod_folders(self, pod_uid: PodUID) -> Iterator[str]:
        marks = (f"pod{pod_uid}", f"pod{pod_uid.replace('-', '_')}.slice")
        yield from _find(str(self._root), marks, DEEPEST)

    def _holds_process(self, folder: str, container_id: str | None) -> bool:
        for path, _, files in os.walk(folder):
            if PROCESSES not in files:
                continue
            if container_id is not None and container_id not in path[len(folder) :]:
                continue
            if _has_content(os.path.join(path, PROCESSES)):  # noqa: PTH118  a hot path of strings
                return True
        return False


def pod_of_process(pid: int, proc: Path = Path("/proc")) -> PodUID | None:
    """The pod that a process of this machine belongs to, by the path of its cgroup."""
    try:
        found = _POD.search((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return None
    return PodUID(found[1].replace("_", "-")) if found else None


def _find(folder: str, marks: tuple[str, ...], depth: int) -> Iterator[str]:
    """Folders whose name ends with one of the marks. The tree changes while we look: gone is fine."""
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(marks):
            yield entry.path
        elif depth > 1:
            yield from _find(entry.path, marks, depth - 1)


def _has_content(path: str) -> bool:
    # The kernel gives these files no size: reading is the only way to know. A threaded version-2 group
    # refuses the read; its processes are listed in the folder above, which is walked as well.
    try:
        return bool(Path(path).read_bytes().strip())
    except OSError:
        return False
