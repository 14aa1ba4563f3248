"""The NVML driver's real calls, against a shared library that keeps MIG state."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pynvml
import pytest

from apportion.apis.placements import SlicePlacement
from apportion.node.hardware.nvml.driver import NvmlDriver
from apportion.node.hardware.nvml.health import HealthWatch
from apportion.node.hardware.partitioner import Busy, GpuLost, PlacementTaken, Process, Refused, Slice, Unavailable
from tests.node.agent_node import AgentNode
from tests.node.hardware import nvml_stub

GPU = "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"
T4 = "GPU-00000002-aaaa-bbbb-cccc-dddddddddddd"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ctypes.CDLL(str(nvml_stub.build(tmp_path_factory.mktemp("nvml"))))


@pytest.fixture
async def driver(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NvmlDriver]:
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    library.stub_reset()
    driver = NvmlDriver()
    yield driver
    await driver.close()


async def test_s09_discovery_reports_models_mode_and_placements(driver: NvmlDriver) -> None:
    first, second, third = await driver.discover()
    assert (first.uuid, first.model, first.memory_mib, first.sliced) == (GPU, "NVIDIA A100-PCIE-40GB", 40960, True)
    assert second.profiles == first.profiles
    assert {p.name: (p.size, p.starts, p.limit) for p in first.profiles} == {
        "1g.5gb": (1, (0, 1, 2, 3, 4, 5, 6), 0),
        "2g.10gb": (2, (0, 2, 4), 0),
        "3g.20gb": (4, (0, 4), 0),
        "4g.20gb": (4, (0,), 0),
        "7g.40gb": (8, (0,), 0),
        "1g.5gb+me": (1, (0, 1, 2, 3, 4, 5, 6), 1),
        "1g.10gb": (2, (0, 2, 4, 6), 0),
    }
    assert (third.model, third.sliced, third.profiles) == ("Tesla T4", False, ())


@pytest.mark.parametrize(
    ("profile", "start", "size"),
    [
        ("1g.5gb", 6, 1),
        ("1g.5gb+me", 3, 1),
        ("1g.10gb", 6, 2),
        ("2g.10gb", 4, 2),
        ("3g.20gb", 4, 4),
        ("4g.20gb", 0, 4),
        ("7g.40gb", 0, 8),
    ],
)
async def test_s07_each_profile_is_made_at_its_exact_place(
    driver: NvmlDriver, library: ctypes.CDLL, profile: str, start: int, size: int
) -> None:
    place = SlicePlacement(GPU, profile, start, size)
    made = await driver.create(place)
    assert made.uuid.startswith("MIG-")
    assert await driver.slices() == [made]
    await driver.destroy(place)
    assert await driver.slices() == []
    assert library.stub_instances(0) == 0
    assert (await driver.create(place)).uuid != made.uuid


async def test_s07_an_occupied_place_is_told_from_other_errors(driver: NvmlDriver) -> None:
    await driver.create(SlicePlacement(GPU, "3g.20gb", 4, 4))
    with pytest.raises(PlacementTaken):
        await driver.create(SlicePlacement(GPU, "2g.10gb", 4, 2))
    await driver.create(SlicePlacement(GPU, "4g.20gb", 0, 4))


async def test_s08_a_busy_slice_is_tried_again_until_it_goes(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    place = SlicePlacement(GPU, "1g.5gb", 0, 1)
    made = await driver.create(place)
    library.stub_busy(1)
    with pytest.raises(Busy):
        await driver.destroy(place)
    assert await driver.slices() == [made]
    await driver.destroy(place)
    await driver.destroy(place)
    assert await driver.slices() == []


async def test_s08_a_slice_that_is_only_half_made_is_seen_and_can_be_removed(
    driver: NvmlDriver, library: ctypes.CDLL
) -> None:
    place = SlicePlacement(GPU, "1g.5gb", 0, 1)
    made = await driver.create(place)
    device = pynvml.nvmlDeviceGetHandleByUUID(GPU.encode())
    instances = (pynvml.c_nvmlGpuInstance_t * 8)()
    pynvml.nvmlDeviceGetGpuInstances(device, 19, instances, ctypes.byref(ctypes.c_uint(8)))
    computes = (pynvml.c_nvmlComputeInstance_t * 8)()
    pynvml.nvmlGpuInstanceGetComputeInstances(instances[0], 103, computes, ctypes.byref(ctypes.c_uint(8)))
    pynvml.nvmlComputeInstanceDestroy(computes[0])
    assert await driver.slices() == [Slice(made.place, "")]
    await driver.destroy(place)
    assert library.stub_instances(0) == 0


async def test_s07_a_gpu_instance_without_its_compute_instance_is_taken_back(
    driver: NvmlDriver, library: ctypes.CDLL
) -> None:
    library.stub_refuse_compute(1)
    with pytest.raises(PlacementTaken):
        await driver.create(SlicePlacement(GPU, "1g.5gb", 0, 1))
    assert library.stub_instances(0) == 0


async def test_s11_a_lost_gpu_stays_on_the_list_as_unhealthy(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    await driver.discover()
    library.stub_lose(0, 1)
    first, second, _ = await driver.discover()
    assert not first.healthy
    assert second.healthy
    with pytest.raises(GpuLost):
        await driver.create(SlicePlacement(GPU, "1g.5gb", 0, 1))
    library.stub_lose(0, 0)
    assert (await driver.discover())[0].healthy


async def test_a_driver_that_was_reloaded_is_taken_up_again(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    await driver.discover()
    library.stub_unload()
    with pytest.raises(Unavailable):
        await driver.discover()
    assert len(await driver.discover()) == 3


async def test_what_can_never_be_is_refused_with_the_reason(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    with pytest.raises(Refused, match=r"no profile 1g.18gb"):
        await driver.create(SlicePlacement(GPU, "1g.18gb", 0, 1))
    with pytest.raises(Refused, match="not in MIG mode"):
        await driver.create(SlicePlacement(T4, "1g.5gb", 0, 1))
    library.stub_no_permission(1)
    with pytest.raises(Unavailable, match="must run privileged"):
        await driver.create(SlicePlacement(GPU, "1g.5gb", 0, 1))
    with pytest.raises(GpuLost, match="not on this node"):
        await driver.create(SlicePlacement("GPU-nowhere", "1g.5gb", 0, 1))
    await driver.destroy(SlicePlacement("GPU-nowhere", "1g.5gb", 0, 1))


async def test_s09_errors_that_the_driver_reports_make_a_gpu_unhealthy_for_a_while(
    driver: NvmlDriver, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(driver, "_health", HealthWatch(lambda: now))
    assert all(gpu.healthy for gpu in await driver.discover())
    library.stub_event(1, pynvml.nvmlEventTypeXidCriticalError, 31)  # a page fault: the program's
    assert all(gpu.healthy for gpu in await driver.discover())
    library.stub_event(1, pynvml.nvmlEventTypeXidCriticalError, 79)
    assert [gpu.fault for gpu in await driver.discover()] == ["", "critical error XID 79", ""]
    now = 200.0
    library.stub_event(1, pynvml.nvmlEventTypeDoubleBitEccError, 0)
    assert (await driver.discover())[1].fault == "a memory error that cannot be corrected"
    now = 499.0
    assert not (await driver.discover())[1].healthy
    now = 501.0
    assert (await driver.discover())[1].healthy


async def test_s07_memory_is_told_by_process_and_slice(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    assert await driver.processes([]) == []
    made = await driver.create(SlicePlacement(GPU, "2g.10gb", 0, 2))
    library.stub_process(0, 1, 4711, 300)
    assert await driver.processes([]) == [Process(4711, made.uuid, 300)]
    library.stub_process(2, 0xFFFFFFFF, 4712, 100)
    assert await driver.processes([]) == [Process(4712, T4, 100)]


async def test_g06_the_memory_in_use_of_a_lost_gpu_is_unknown(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    await driver.discover()
    library.stub_lose(0, 1)
    assert await driver.processes([]) == [Process(0, GPU, None)]


async def test_s08_a_busy_slice_names_the_process_that_uses_it(driver: NvmlDriver, library: ctypes.CDLL) -> None:
    place = SlicePlacement(GPU, "2g.10gb", 0, 2)
    await driver.create(place)
    library.stub_process(0, 1, 4711, 300)
    library.stub_busy(1)
    with pytest.raises(Busy, match=r"it is in use \(process 4711\)"):
        await driver.destroy(place)


async def test_s07_a_slice_is_reached_through_its_gpu_and_two_capabilities(
    driver: NvmlDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await driver.create(SlicePlacement(GPU, "1g.5gb", 0, 1))
    second = await driver.create(SlicePlacement(GPU, "2g.10gb", 2, 2))
    files = ["nvidiactl", "nvidia-uvm", "nvidia4", "nvidia6", *(f"nvidia-caps/nvidia-cap{n}" for n in (12, 13, 21, 22))]
    for name in files:
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    minors = (
        "config 1\nmonitor 2\ngpu4/gi1/access 12\ngpu4/gi1/ci0/access 13\ngpu4/gi2/access 21\ngpu4/gi2/ci0/access 22\n"
    )
    (tmp_path / "proc/driver/nvidia-caps").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").write_text(minors)
    monkeypatch.setattr(driver, "_root", tmp_path)
    common = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia4"]
    one = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (12, 13)]
    two = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (21, 22)]
    assert await driver.device_nodes([first.uuid]) == [*common, *one]
    assert await driver.device_nodes([second.uuid, first.uuid]) == [*common, *two, *one]
    assert await driver.device_nodes([T4]) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia6"]


async def test_a_driver_that_hangs_is_told_and_taken_up_again(
    driver: NvmlDriver, library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.discover()
    monkeypatch.setattr("apportion.node.hardware.nvml.driver.ANSWER_SECONDS", 0.2)
    library.stub_slow(1)
    with pytest.raises(Unavailable, match=r"NVML did not respond within 0.2 s"):
        await driver.discover()
    library.stub_slow(0)
    monkeypatch.setattr("apportion.node.hardware.nvml.driver.ANSWER_SECONDS", 20.0)
    assert len(await driver.discover()) == 3


async def test_without_nvidias_library_the_agent_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "CDLL", missing)
    driver = NvmlDriver()
    with pytest.raises(Unavailable, match=r"libnvidia-ml.so.1 is missing"):
        await driver.discover()
    await driver.close()


async def test_s07_the_agent_serves_nvml_slices_to_a_kubelet(
    driver: NvmlDriver, bare: AgentNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.node.agent_node.GPUS", [GPU])
    monkeypatch.setattr(driver, "_root", tmp_path)
    (tmp_path / "dev").mkdir()
    for name in ("nvidiactl", "nvidia4"):
        (tmp_path / "dev" / name).touch()
    bare.make_driver = lambda: driver
    await bare.start_agent()
    assert bare.kubelet.totals()["mig.das.com/1g.5gb"] == (14, 14)
    pod = await bare.scheduled("a", "1g.10gb", 6)
    environment = await bare.run(pod)
    (made,) = await driver.slices()
    assert environment["NVIDIA_VISIBLE_DEVICES"] == made.uuid
    assert made.place == SlicePlacement(GPU, "1g.10gb", 6, 2)
    (described,) = bare.cdi_files()
    (device,) = json.loads(described.read_text())["devices"]
    assert device["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia4"}]
    (mount,) = device["containerEdits"]["mounts"]
    assert mount["hostPath"] == "/dev/null"
    assert mount["containerPath"] == f"/var/run/nvidia-container-devices/{made.uuid}"
    await bare.delete(pod)
    await bare.eventually(bare.clean, "claims and files are gone")
    assert await driver.slices() == []


async def test_t05_g12_the_agent_reports_a_runtime_that_gives_containers_any_gpu(
    driver: NvmlDriver, bare: AgentNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.node.agent_node.GPUS", [GPU])
    config = tmp_path / "etc/nvidia-container-runtime/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("disable-require = false\n")
    bare.settings = dataclasses.replace(bare.settings, host_root=tmp_path)
    bare.make_driver = lambda: driver
    await bare.start_agent()
    await bare.eventually(lambda: runtime_condition(bare, "False", "VariableAccepted"), "the switch is reported")
    assert (await bare.accelerator()).takes_shares
    config.write_text(
        "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
    )
    await bare.eventually(lambda: runtime_condition(bare, "True", "Restricted"), "and that it was changed")
    assert not (await bare.accelerator()).takes_shares, "containers that share a GPU get it by this variable (G12)"


async def runtime_condition(node: AgentNode, status: str, reason: str) -> bool:
    conditions = (await node.accelerator()).status.conditions
    found = next((each for each in conditions if each.type == "ContainerRuntimeConfigured"), None)
    return found is not None and (found.status, found.reason) == (status, reason)
