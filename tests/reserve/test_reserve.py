"""`apportion reserve` as a process: what it writes, what it survives, how it ends, what it costs (G05)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apportion.apis import kinds, names
from tests.node.hardware import nvml_stub
from tests.pocketkube.cluster import RunningCluster, embedded
from tests.reserve.reserving import POD, Reservation, grant, install

GPU = "GPU-8d1f7a52-0000-5000-8000-000000000001"
RESERVED = f"INFO reserve reserved GPU {GPU} for pods that share it"
HEAVY = ("aiohttp", "asyncio", "dataclasses", "logging", "msgspec", "numpy", "pynvml", "rich", "typer", "yaml")
MEMORY_KIB = 14_000  # resident, of which most is the interpreter, which all Python processes of a node share


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with embedded(tmp_path, nodes=0) as made:
        yield made


@pytest.fixture
async def reservation(cluster: RunningCluster, tmp_path: Path) -> Reservation:
    return _reservation(cluster, tmp_path, await install(cluster))


def _reservation(cluster: RunningCluster, folder: Path, uid: str) -> Reservation:
    secrets = folder / "secrets"
    secrets.mkdir()
    return Reservation(cluster, secrets, uid)


async def test_g05_the_gpu_of_the_container_is_written_on_its_pod(reservation: Reservation) -> None:
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
        assert await process.line() == RESERVED
        assert await reservation.gpu() == GPU
        assert await process.stop(signal.SIGTERM) == 0


async def test_g05_a_restarted_container_writes_the_same_again(reservation: Reservation) -> None:
    for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
            assert await process.line() == RESERVED
            assert await process.stop(end) == (-signal.SIGKILL if end is signal.SIGKILL else 0)
    assert await reservation.gpu() == GPU


async def test_g05_a_container_on_another_gpu_says_so(reservation: Reservation) -> None:
    for gpu in (GPU, f"{GPU}-other"):
        async with reservation.running(NVIDIA_VISIBLE_DEVICES=gpu) as process:
            await process.line()
    assert await reservation.gpu() == f"{GPU}-other"


async def test_g05_the_driver_names_the_gpu_if_the_environment_does_not(
    reservation: Reservation, tmp_path: Path
) -> None:
    library = nvml_stub.build(tmp_path)
    third = "GPU-00000002-aaaa-bbbb-cccc-dddddddddddd"
    given = {"LD_LIBRARY_PATH": str(library.parent), "NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}
    async with reservation.running(**given, NVML_STUB_GPUS="2") as process:
        assert await process.line() == f"INFO reserve reserved GPU {third} for pods that share it"
    assert await reservation.gpu() == third


@pytest.mark.parametrize(
    ("gpus", "told"), [("", "this container has no GPU"), ("02", "this container sees 2 GPUs instead of one")]
)
async def test_g05_no_gpu_and_several_are_told_and_nothing_is_written(
    reservation: Reservation, tmp_path: Path, gpus: str, told: str
) -> None:
    library = nvml_stub.build(tmp_path)
    async with reservation.running(LD_LIBRARY_PATH=str(library.parent), NVML_STUB_GPUS=gpus) as process:
        line = await process.line()
        assert line.startswith(f"ERROR reserve {told}"), line
        assert "must request nvidia.com/gpu: 1" in line
        assert await process.stop(signal.SIGTERM) == 0
    assert await reservation.gpu() is None


async def test_g05_a_missing_driver_is_told_with_the_setting_that_gives_it(reservation: Reservation) -> None:
    async with reservation.running(NVIDIA_VISIBLE_DEVICES="void") as process:
        line = await process.line()
    assert line.startswith("ERROR reserve libnvidia-ml.so.1 is not in this container")
    assert "spec.binder.resourceReservation.runtimeClassName" in line


async def test_g05_a_renewed_token_is_read_for_the_next_attempt(reservation: Reservation) -> None:
    reservation.write_token("expired")
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
        assert (await process.line()).startswith("WARNING reserve the API server answered 401")
        reservation.write_token()
        while (line := await process.line()).startswith("WARNING"):
            pass
        assert line == RESERVED


async def test_g05_an_api_server_that_is_away_is_waited_for(reservation: Reservation) -> None:
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU, KUBERNETES_SERVICE_PORT="1") as process:
        for seconds in ("0.5", "1", "2"):
            line = await process.line()
            assert line.startswith("WARNING reserve the API server at 127.0.0.1:1 cannot be reached"), line
            assert line.endswith(f"next attempt in {seconds} s")
        assert await process.stop(signal.SIGTERM) == 0


async def test_g05_a_missing_right_is_told_with_the_fix(cluster: RunningCluster, tmp_path: Path) -> None:
    reservation = _reservation(cluster, tmp_path, await install(cluster, rights=False))
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
        line = await process.line()
        assert "answered 403" in line
        assert (
            "the service account of this pod needs the right to patch pods in this namespace; next attempt in 10 s"
            in line
        )
    await grant(cluster)
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
        assert await process.line() == RESERVED


async def test_g05_other_annotations_of_the_pod_stay(reservation: Reservation) -> None:
    ours = {names.SHARERS: "{}", names.PLANNED_GPU: "node-1/0"}
    await reservation.cluster.patch(kinds.PODS, POD, {"metadata": {"annotations": ours}})
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
        await process.line()
    found = await reservation.cluster.get(kinds.PODS, POD)
    assert found["metadata"]["annotations"] == ours | {names.RESERVED_GPU: GPU}


async def test_g05_a_reservation_costs_little_memory(reservation: Reservation) -> None:
    async with reservation.running(NVIDIA_VISIBLE_DEVICES=GPU) as process:
        assert await process.line() == RESERVED
        assert process.memory("VmRSS") < MEMORY_KIB


def test_g05_the_command_loads_no_library() -> None:
    text = "import sys, apportion.__main__, apportion.reserve.process, apportion.reserve.attempts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & set(HEAVY)
    assert {name for name in loaded if name.startswith(("apportion.apis.", "apportion.cluster."))} == {
        "apportion.apis.names",
        "apportion.cluster.service_account",
    }
