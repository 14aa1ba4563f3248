"""Whether a pod still runs, from its cgroup folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.node.container.cgroups import Cgroups

UID = "8f14e45f-ceea-467f-9575-1234567890ab"
DASHED = UID.replace("-", "_")


@pytest.mark.parametrize(
    "folder",
    [
        f"kubepods/pod{UID}/abc",  # version 2 or hybrid, cgroupfs driver
        f"kubepods/besteffort/pod{UID}/abc",
        f"cpu,cpuacct/kubepods/burstable/pod{UID}/abc",  # version 1
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{DASHED}.slice/cri-containerd-abc.scope",
        f"systemd/kubepods.slice/kubepods-pod{DASHED}.slice/crio-abc.scope/container",
        f"custom/top/kubepods/pod{UID}/abc",
    ],
)
def test_s06_processes_of_a_pod_are_found_in_every_layout(tmp_path: Path, folder: str) -> None:
    groups = Cgroups(tmp_path)
    assert not groups.running(UID)
    place = tmp_path / folder
    place.mkdir(parents=True)
    (place / "cgroup.procs").write_text("")
    assert not groups.running(UID)
    (place / "cgroup.procs").write_text("0\n")  # a process of another pid namespace
    assert groups.running(UID)
    assert groups.running(UID, "abc")
    assert not groups.running(UID, "def")
    assert not groups.running("another-uid")
