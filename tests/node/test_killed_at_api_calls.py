"""The agent's process is killed at its n-th API call, before or after the server acted, and started again. S06, S08."""

from __future__ import annotations

import asyncio
import json
import os
import random
from asyncio.subprocess import Process
from contextlib import suppress

import pytest

from apportion.apis.custom_resources import claims
from pocketkube.api.http import HttpShell
from pocketkube.kubelet.containers.cdi import CdiError
from pocketkube.kubelet.devices.ledger import AllocationError
from pocketkube.kubelet.devices.plugin import PluginError
from tests.node.agent_node import AgentNode, agent_node
from tests.node.killing_proxy import KillingProxy, killing_proxy
from tests.node.test_process import command, environment_of, flags_of

FULL = os.environ.get("APPORTION_SOAK") == "1"
SAMPLE = 3
ONE_GPU = {"apportion.io/emulated-gpus": json.dumps([{"product": "NVIDIA A100-PCIE-40GB", "count": 1}])}


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_s06_s08_an_agent_killed_at_any_api_call_leaves_nothing_behind() -> None:
    total = len(await play(None, after=False))
    every = [(at, after) for at in range(1, total + 1) for after in (False, True)]
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"{total} calls; seed {seed}: rerun with APPORTION_SEED={seed}")
    chosen = every if FULL else random.Random(seed).sample(every, SAMPLE)
    for at, after in chosen:
        await play(at, after=after)


async def play(at: int | None, *, after: bool) -> list[str]:
    """One pod from start to release while the agent is killed once; returns the calls that were made."""
    async with agent_node(annotations=ONE_GPU) as node:
        shell = HttpShell(node.server, None)
        await shell.start()
        try:
            async with killing_proxy(shell.url, at=at, after=after) as proxy, agent(node, proxy):
                try:
                    await one_life(node)
                    await node.eventually(lambda: clean(node), "nothing is left, in the records neither", seconds=60)
                except AssertionError as error:
                    raise AssertionError(
                        f"cut at {at} ({'after' if after else 'before'} {proxy.cut}): {error}"
                    ) from None
                return proxy.calls
        finally:
            await shell.stop()


class agent:  # noqa: N801  reads as what it is: `async with agent(node, proxy)`
    """The process, restarted whenever it ends."""

    def __init__(self, node: AgentNode, proxy: KillingProxy) -> None:
        self._node = node
        self._proxy = proxy
        self._process: Process | None = None

    async def __aenter__(self) -> None:
        self._proxy.kill = self._kill
        self._task = asyncio.create_task(self._keep())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task], timeout=5)
        self._kill()
        if self._process is not None:
            await self._process.wait()

    async def _keep(self) -> None:
        while True:
            self._process = await command(*flags_of(self._node), **environment_of(self._node, self._proxy.url))
            await self._process.communicate()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


async def one_life(node: AgentNode) -> None:
    pod = await node.pod("p", {"mig.das.com/3g.20gb": 1, "mig.das.com/4g.20gb": 1})
    names = [await node.claim(pod, "3g.20gb", 4, index=0), await node.claim(pod, "4g.20gb", 0, index=1)]
    await node.bind(pod)
    await node.eventually(lambda: "mig.das.com/3g.20gb" in node.kubelet.totals(), "the agent registers", seconds=60)
    await node.eventually(lambda: "mig.das.com/4g.20gb" in node.kubelet.totals(), "all of it", seconds=60)
    await node.eventually(lambda: attempt(node.admit(pod)), "the kubelet lets it in", seconds=60)
    environment = await node.eventually(lambda: attempt(node.start(pod)), "it starts", seconds=60)
    await node.report(pod, "Running")
    wanted = [await node.eventually(lambda name=name: in_use(node, name), "the claim is in use") for name in names]
    assert environment["NVIDIA_VISIBLE_DEVICES"].split(",") == wanted
    assert set(await node.slices()) == set(wanted)
    await node.delete(pod)


async def attempt(call: object) -> object:
    """As a kubelet does: an error is shown, and tried again."""
    try:
        return await call or True  # type: ignore[misc]
    except (PluginError, AllocationError, CdiError):
        return None


async def in_use(node: AgentNode, name: str) -> str | None:
    claim = await node.get(name)
    return claim.status.mig_uuid if claim.state == claims.IN_USE else None


async def clean(node: AgentNode) -> bool:
    records = node.settings.state_dir / "slices.json"
    return await node.clean() and not (json.loads(records.read_text()) if records.exists() else [])
