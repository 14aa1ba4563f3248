"""Small parts: cgroup folders, CDI files, the records, files, capacity."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.node import atomic_files
from apportion.node.container import cdi
from apportion.node.container.cdi import CdiFolder, Owner
from apportion.node.container.cgroups import Cgroups
from apportion.node.hardware.partitioner import Gpu, Place, ProfileFacts
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords
from apportion.node.kubelet import capacity

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


def test_s07_a_device_name_depends_on_resource_and_ids_alone() -> None:
    name = cdi.device_name("mig.das.com/1g.5gb", ["b", "a"])
    assert name == cdi.device_name("mig.das.com/1g.5gb", ["a", "b"])
    assert name != cdi.device_name("mig.das.com/1g.5gb", ["a"])
    assert name != cdi.device_name("mig.das.com/2g.10gb", ["a", "b"])
    assert cdi.qualified(name) == f"apportion.io/slice={name}"


def test_s08_a_cdi_file_is_removed_only_for_the_pod_it_names(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path)
    folder.write("x", Owner("old", frozenset({"main"})), {"A": "1"})
    folder.write("x", Owner("new", frozenset({"main"})), {"A": "2"})
    folder.remove("x", "old")
    (path,) = tmp_path.iterdir()
    spec = json.loads(path.read_text())
    assert spec["cdiVersion"] == "0.6.0"
    assert spec["kind"] == "apportion.io/slice"
    assert spec["devices"][0]["containerEdits"] == {"env": ["A=2"]}
    assert folder.of_pod("new").keys() == {"x"}
    again = CdiFolder(tmp_path)
    again.load()
    assert again.of_pod("new") == folder.of_pod("new")
    folder.remove("x", "new")
    assert list(tmp_path.iterdir()) == []


def test_the_book_outlives_the_agent_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = SliceRecords(tmp_path)
    records.load()
    place = Place("GPU-0", "1g.5gb", 3, 1)
    records.put(SliceRecord("c", "u", place))
    again = SliceRecords(tmp_path)
    again.load()
    assert again.get("c") == SliceRecord("c", "u", place)
    assert again.overlapping("other", Place("GPU-0", "3g.20gb", 0, 4)) is not None
    assert again.overlapping("other", Place("GPU-1", "3g.20gb", 0, 4)) is None
    assert again.overlapping("c", place) is None

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(atomic_files, "write", full)
    with pytest.raises(OSError, match="no space"):
        again.remove("c")
    assert again.get("c") is not None


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "file"
    atomic_files.write(target, b"one")
    atomic_files.write(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_m03_ids_that_containers_hold_stay_healthy_when_a_gpu_is_lost() -> None:
    ids = capacity.device_ids("mig.das.com/1g.5gb-plus-me", 4)
    assert ids == [f"1g.5gb-plus-me-{n}" for n in range(4)]
    assert capacity.choose_healthy(ids, 2, frozenset({ids[3]})) == {ids[0], ids[3]}


def test_m03_a_gpu_that_is_not_sliced_counts_for_nothing() -> None:
    whole = Gpu("g", "Tesla T4", 15360, sliced=False)
    sick = Gpu("h", "Card", 8192, sliced=True, profiles=(ProfileFacts("1g.8gb", 1, (0,)),), fault="lost")
    assert capacity.amounts([whole, sick]) == {
        "mig.das.com/1g.8gb": capacity.Amount(1, 0),
        "gpu.das.com/mem": capacity.Amount(8, 0),
    }
