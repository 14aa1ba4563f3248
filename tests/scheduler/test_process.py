"""The scheduler as processes: two of them, one stopped in the middle of its work and woken again."""

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
from tests.scheduler import cluster as clusters
from tests.scheduler.cluster import NAMESPACE, ApiCluster, until


@asynccontextmanager
async def process(kubeconfig: Path, name: str, logs: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAME": name}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    with (logs / f"{name}.log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "apportion", "scheduler", "--probes=127.0.0.1:0", "--lease-duration=3"),
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


async def holder(cluster: ApiCluster) -> str:
    async def found() -> str:
        leases = await cluster.client.list(kinds.LEASES, namespace=NAMESPACE)
        held = [str(lease["spec"].get("holderIdentity") or "") for lease in leases.items]
        return held[0].split("_")[0] if held else ""

    return await until(found, within=30)


async def test_a_leader_that_was_stopped_and_wakes_up_does_no_harm(tmp_path: Path) -> None:
    async with clusters.embedded() as cluster:
        config = cluster.kubeconfig
        await cluster.node("n1")
        async with process(config, "first", tmp_path) as first:
            assert await holder(cluster) == "first"
            async with process(config, "second", tmp_path):
                for number in range(6):
                    await cluster.pod(f"p{number}", slices={"1g.5gb": 1})
                first.send_signal(signal.SIGSTOP)
                pods = [f"p{number}" for number in range(12)]
                for name in pods[6:]:
                    await cluster.pod(name, slices={"1g.5gb": 1})
                await cluster.bound(*pods, within=40)
                first.send_signal(signal.SIGCONT)
                await cluster.pod("after", slices={"1g.5gb": 1})
                await cluster.bound("after", within=20)
                assert await holder(cluster) == "second"
                await asyncio.sleep(1)
        await cluster.no_overlap()
        owners = [claim.spec.pod_ref.name for claim in await cluster.claims()]
        assert sorted(owners) == sorted([*pods, "after"])
        log = (tmp_path / "first.log").read_text()
        assert "Traceback" not in log
        assert "lost the lease" in log or "the lease expired" in log


async def test_r03_the_process_answers_its_probes_and_ends_on_sigterm(tmp_path: Path) -> None:
    async with clusters.embedded() as cluster:
        await cluster.node("n1")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "apportion", "scheduler", f"--probes=127.0.0.1:{port}"),
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        )
        try:
            async with aiohttp.ClientSession() as session:

                async def ready() -> bool:
                    with suppress(aiohttp.ClientError):
                        async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                            return response.status == 200
                    return False

                await until(ready, within=30)
                await cluster.pod("a", slices={"1g.5gb": 1})
                await cluster.bound("a")
                async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                    assert 'apportion_scheduler_commits_total{outcome="bound"} 1.0' in await response.text()
        finally:
            child.terminate()
            async with asyncio.timeout(15):
                assert await child.wait() == 0
        lease = await cluster.client.get(kinds.LEASES, names.SCHEDULER_LEASE, namespace=NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "", "given back, so that the next one need not wait"
