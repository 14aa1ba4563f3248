"""The agent is killed between any two steps, comes back, and the end is the same. Rules S06, S08."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from apportion.apis.custom_resources import claims
from apportion.emulation.gpus.driver import EmulatedDriver
from apportion.node import atomic_files
from pocketkube.kubelet.containers.cdi import CdiError
from pocketkube.kubelet.devices.ledger import AllocationError
from pocketkube.kubelet.devices.plugin import PluginError
from tests.node.agent_node import NODE, AgentNode, agent_node
from tests.node.tripwire import Tripwire, WiredDriver, WiredFiles, client

T = TypeVar("T")
STEPS = 52  # more steps than the run has; later ones have no effect


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Iterator[WiredFiles]:
    stand_in = WiredFiles()
    monkeypatch.setattr(atomic_files, "write", stand_in.write)
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: stand_in.unlink(path, missing_ok))
    yield stand_in
    stand_in.wire = None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("block", range(4))
async def test_s08_an_agent_killed_at_any_step_leaves_nothing_behind(
    wired: WiredFiles, block: int, *, after: bool
) -> None:
    """Each block of steps is a test of its own, so that a failure shows its approximate step."""
    for at in range(1 + block * STEPS // 4, 1 + (block + 1) * STEPS // 4):
        async with agent_node(annotations=ONE_GPU) as node:
            story = Story(node, wired, Tripwire(at, after=after))
            try:
                await story.play()
            except AssertionError as error:
                steps = "\n  ".join(story.wire.steps)
                raise AssertionError(
                    f"killed {'after' if after else 'before'} step {at}: {error}\n  {steps}"
                ) from error


async def test_s08_an_agent_killed_again_while_it_recovers_leaves_nothing_behind(wired: WiredFiles) -> None:
    seed = random.randrange(10**6)
    chosen = random.Random(seed)
    for _ in range(12):
        steps = [chosen.randint(3, STEPS), chosen.randint(1, 8), chosen.randint(1, 8)]
        async with agent_node(annotations=ONE_GPU) as node:
            first, *others = (Tripwire(at, after=chosen.random() < 0.5) for at in steps)
            try:
                await Story(node, wired, first, *others).play()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, killed at {steps}: {error}") from error


async def test_s08_every_step_of_the_run_is_tried(wired: WiredFiles) -> None:
    async with agent_node(annotations=ONE_GPU) as node:
        story = Story(node, wired, Tripwire(None))
        await story.play()
        assert 15 < len(story.wire.steps) < STEPS, story.wire.steps


ONE_GPU = {"apportion.io/emulated-gpus": json.dumps([{"product": "NVIDIA A100-PCIE-40GB", "count": 1}])}


class Story:
    """Two pods one after the other on the same place with the same ids, one of them with two profiles."""

    def __init__(self, node: AgentNode, wired: WiredFiles, wire: Tripwire, *others: Tripwire) -> None:
        self.node = node
        self.wire = wire
        self._others = others
        self._wired = wired
        self._use(wire)

    async def play(self) -> None:
        node = self.node
        await node.start_agent(ready=False)
        watcher = asyncio.create_task(self._revive())
        try:
            await node.eventually(node.is_ready, "the agent is ready")
            for name in ("first", "second"):
                await self._one_life(name)
            await node.eventually(self._clean, "nothing is left, in the records neither")
        finally:
            watcher.cancel()
            await asyncio.wait([watcher], timeout=5)

    async def _one_life(self, name: str) -> None:
        node = self.node
        pod = await node.pod(name, {"mig.das.com/3g.20gb": 1, "mig.das.com/4g.20gb": 1})
        await node.claim(pod, "3g.20gb", 4, index=0)
        await node.claim(pod, "4g.20gb", 0, index=1)
        await node.bind(pod)
        await self._retried(lambda: node.admit(pod))
        environment = await self._retried(lambda: node.start(pod))
        uid = pod["metadata"]["uid"]
        wanted = [await node.get(f"{uid}-main-{index}") for index in (0, 1)]
        assert environment["NVIDIA_VISIBLE_DEVICES"] == ",".join(claim.status.mig_uuid for claim in wanted)
        assert [claim.state for claim in wanted] == [claims.IN_USE, claims.IN_USE]
        assert set(await node.slices()) == {claim.status.mig_uuid for claim in wanted}
        await node.end(pod)
        assert await self._retried(lambda: node.start(pod)) == environment
        await node.delete(pod)
        await node.eventually(self._no_claims, "the claims are gone")

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """As a kubelet does: an error is shown, and tried again."""
        end = asyncio.get_running_loop().time() + 45
        while True:
            try:
                return await call()
            except (PluginError, AllocationError, CdiError) as error:
                if asyncio.get_running_loop().time() > end:
                    raise AssertionError(f"never worked: {error}") from error
                await asyncio.sleep(0.05)

    async def _revive(self) -> None:
        wire = self.wire
        for following in (*self._others, Tripwire(None)):
            await wire.tripped.wait()
            await self.node.stop_agent()
            wire = following
            self._use(wire)
            await self.node.start_agent(ready=False)

    def _use(self, wire: Tripwire) -> None:
        node = self.node
        self._wired.wire = wire
        node.make_client = lambda: client(node.agent_transport(), wire)
        node.make_driver = lambda: WiredDriver(EmulatedDriver(NODE, node.settings.state_dir), wire)

    async def _no_claims(self) -> bool:
        return not await self.node.claims()

    async def _clean(self) -> bool:
        records: list[Any] = json.loads((self.node.settings.state_dir / "slices.json").read_text())
        return await self.node.clean() and not records
