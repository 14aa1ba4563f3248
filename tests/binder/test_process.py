"""The binder as processes: two of them, one stopped in the middle of its work and woken again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from apportion.apis import kinds, names
from tests.binder.cluster import KAI, SharingCluster
from tests.scheduler.cluster import until


@asynccontextmanager
async def process(
    cluster: SharingCluster, name: str, logs: Path, *, port: int = 0, lease: int = 15
) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.api.kubeconfig), "POD_NAME": name}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    with (logs / f"{name}.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "apportion", "binder", f"--probes=127.0.0.1:{port}", f"--lease-duration={lease}"),
            env=environment,
            stderr=log,
        )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGCONT)
            child.terminate()
        async with asyncio.timeout(15):
            await child.wait()


async def holder(cluster: SharingCluster) -> str:
    async def found() -> str:
        leases = await cluster.client.list(kinds.LEASES, namespace=KAI)
        return next((str(lease["spec"].get("holderIdentity") or "") for lease in leases.items), "")

    return await until(found, within=30)


async def test_r03_the_process_answers_its_probes_and_ends_on_sigterm(embedded: SharingCluster, tmp_path: Path) -> None:
    gpus = await embedded.node()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with process(embedded, "binder-1", tmp_path, port=port) as child, aiohttp.ClientSession() as session:

        async def ready() -> bool:
            with suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    return response.status == 200
            return False

        await until(ready, within=30)
        await embedded.request(await embedded.pod("a"), gpus[0])
        await embedded.running("a")
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert 'apportion_binder_bindings_total{result="bound"} 1.0' in await response.text()
    assert child.returncode == 0
    lease = await embedded.client.get(kinds.LEASES, names.BINDER_LEASE, namespace=KAI)
    assert lease["spec"]["holderIdentity"] == "", "given back, so that the next one need not wait"
    log = (tmp_path / "binder-1.log").read_text()
    assert "created GPU reservation" in log
    assert "bound pod default/a to node n1: 20480 MiB of GPU" in log


async def test_g11_a_leader_that_was_stopped_and_wakes_up_does_no_harm(
    embedded: SharingCluster, tmp_path: Path
) -> None:
    gpus = await embedded.node(gpus=4)
    groups: dict[str, list[str]] = {}

    async def pod(number: int) -> None:
        gpu = gpus[number // 2]
        groups[gpu] = await embedded.request(await embedded.pod(f"p{number}"), gpu, groups=groups.get(gpu, ()))

    async with process(embedded, "first", tmp_path, lease=3) as first:
        assert await holder(embedded) == "first"
        async with process(embedded, "second", tmp_path, lease=3):
            for number in range(4):
                await pod(number)
            first.send_signal(signal.SIGSTOP)
            for number in range(4, 7):
                await pod(number)
            await embedded.running(*(f"p{number}" for number in range(7)))
            first.send_signal(signal.SIGCONT)
            await pod(7)
            await embedded.running("p7")
            assert await holder(embedded) == "second"
            await asyncio.sleep(1)
            await embedded.check()
            assert len(await embedded.reservations()) == 4
    assert "Traceback" not in (tmp_path / "first.log").read_text()
