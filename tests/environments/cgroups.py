"""The cgroups of a sandbox: the only thing that the kernel does not take away with its namespaces.

A sandbox's groups are named after the supervisor that owns them (process id and start time). So a later run can
tell groups that a killed supervisor left behind from those of a run that is still going on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "apportion-test-"


def name_for(pid: int) -> str:
    return f"{PREFIX}{pid}-{started(pid)}"


def create(name: str) -> None:
    """The group in every hierarchy (v1) or the one there is (v2), ready for a kubelet's `cgroupRoot`."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(parents=True, exist_ok=True)
    for setting in ("cpuset.cpus", "cpuset.mems"):
        # An empty cpuset lets no process in, and v1 does not inherit it.
        parent = MOUNT / "cpuset"
        for part in Path(name).parts:
            if (parent / setting).exists() and (parent / part / setting).exists():
                (parent / part / setting).write_text((parent / setting).read_text())
            parent /= part
    if (MOUNT / "cgroup.controllers").exists():
        _delegate(name)


def processes(name: str) -> list[int]:
    """Host ids of all processes in the group and below it."""
    found: set[int] = set()
    for hierarchy in _hierarchies():
        for listing in (hierarchy / name).glob("**/cgroup.procs"):
            try:
                found.update(int(line) for line in listing.read_text().split())
            except OSError:  # the group went away while we looked
                continue
    return sorted(found)


def remove(name: str, *, timeout: float = 10.0) -> None:
    """Removes the group everywhere; waits for processes that the kernel is still taking down."""
    deadline = time.monotonic() + timeout
    for hierarchy in _hierarchies():
        while not _removed(hierarchy / name) and time.monotonic() < deadline:
            time.sleep(0.05)


def sweep() -> None:
    """Removes the groups of supervisors that are no more."""
    for name in {folder.name for hierarchy in _hierarchies() for folder in hierarchy.glob(f"{PREFIX}*")}:
        pid, _, start = name.removeprefix(PREFIX).partition("-")
        if not pid.isdigit() or str(started(int(pid))) != start:
            remove(name)


def started(pid: int) -> int:
    """When the process began, in clock ticks since boot; 0 if there is none or nobody has reaped it yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def _hierarchies() -> Iterator[Path]:
    if (MOUNT / "cgroup.controllers").exists():
        yield MOUNT
        return
    for folder in sorted(MOUNT.iterdir()):
        if folder.is_dir() and not folder.is_symlink() and (folder / "cgroup.procs").exists():
            yield folder


def _delegate(name: str) -> None:
    wanted = " ".join(f"+{controller}" for controller in (MOUNT / "cgroup.controllers").read_text().split())
    folder = MOUNT
    for part in Path(name).parts:
        (folder / "cgroup.subtree_control").write_text(wanted)
        folder /= part


def _removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
