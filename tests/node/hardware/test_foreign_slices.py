"""Slices that others make on our GPUs, also at the worst moment: never ours, never in a pod, never destroyed. S08."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from apportion.apis import kinds, names
from apportion.apis.nodes import Node
from apportion.apis.placements import SlicePlacement
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response, Transport
from apportion.emulation.gpus.driver import EmulatedDriver
from apportion.node import startup
from apportion.node.cluster.claim_store import ClaimStore
from apportion.node.hardware.partitioner import PlacementTaken
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords
from apportion.node.hardware.slicing import Slicing
from apportion.node.locks import Locks
from apportion.view.view import View
from pocketkube.kubelet.devices.plugin import PluginError
from tests.node.agent_node import GPUS, NODE, AgentNode
from tests.node.test_failures import has_event

PLACE = SlicePlacement(GPUS[0], "2g.10gb", 2, 2)
MEDIA = "1g.5gb+me"  # at most one on a GPU, wherever it stands


async def test_s08_a_slice_made_by_hand_at_a_reserved_place_is_not_ours(bare: AgentNode) -> None:
    driver, records, slicing = await parts(bare)
    entry = await slicing.reserve("claim", "pod", PLACE)
    theirs = await driver.create(PLACE)
    assert await slicing.uuid_of(entry) == ""
    with pytest.raises(PlacementTaken, match="which Apportion did not create"):
        await slicing.make(entry)
    assert await slicing.foreign() == [theirs]
    await startup.adopt(driver, records, no_claims(bare))
    assert records.get("claim") == entry
    await slicing.unmake(entry)
    assert await driver.slices() == [theirs]


async def test_s08_a_slice_made_by_hand_after_a_refusal_is_not_ours(bare: AgentNode) -> None:
    driver, records, slicing = await parts(bare)
    entry = await slicing.reserve("claim", "pod", SlicePlacement(GPUS[0], MEDIA, 3, 1))
    await driver.create(SlicePlacement(GPUS[0], MEDIA, 0, 1))
    with pytest.raises(PlacementTaken, match="compute units or engines"):
        await slicing.make(entry)
    await driver.destroy(SlicePlacement(GPUS[0], MEDIA, 0, 1))
    theirs = await driver.create(entry.place)
    await startup.adopt(driver, records, no_claims(bare))
    assert await slicing.foreign() == [theirs]


async def test_s08_a_slice_that_was_being_made_is_ours(bare: AgentNode) -> None:
    driver, records, slicing = await parts(bare)
    records.put(SliceRecord("claim", "pod", PLACE, making=True))
    ours = await driver.create(PLACE)
    assert await slicing.foreign() == []
    await startup.adopt(driver, records, no_claims(bare))
    entry = records.get("claim")
    assert entry == SliceRecord("claim", "pod", PLACE, ours.uuid)
    assert await slicing.uuid_of(entry) == await slicing.make(entry) == ours.uuid
    await slicing.unmake(entry)
    assert await driver.slices() == []


async def test_s08_records_of_older_agents_are_read(bare: AgentNode) -> None:
    driver, records, slicing = await parts(bare)
    made, unfinished = await driver.create(PLACE), await driver.create(SlicePlacement(GPUS[0], "1g.5gb", 0, 1))
    old = '{"claim":"%s","podUid":"u","place":{"gpu":"%s","profile":"%s","start":%d,"size":%d},"uuid":"%s"}'
    lines = [
        old % (name, it.place.gpu, it.place.profile, it.place.start, it.place.size, uuid)
        for name, it, uuid in (("a", made, made.uuid), ("b", unfinished, ""))
    ]
    (bare.settings.state_dir / "slices.json").write_text(f"[{','.join(lines)}]")
    records.load()
    assert records.get("a") == SliceRecord("a", "u", made.place, made.uuid)
    assert records.get("b") == SliceRecord("b", "u", unfinished.place)
    assert await slicing.foreign() == [unfinished]


async def test_s08_a_slice_made_by_hand_while_ours_is_prepared_stays_out_of_the_pod(bare: AgentNode) -> None:
    made: list[str] = []

    async def by_hand() -> None:
        made.append((await EmulatedDriver(NODE, bare.settings.state_dir).create(PLACE)).uuid)

    bare.make_client = lambda: Client(Meddler(bare.agent_transport(), by_hand))
    await bare.start_agent()
    pod = await bare.scheduled("a", PLACE.profile, PLACE.start)
    environment = await bare.run(pod)
    (claim,) = await bare.claims()
    assert environment["NVIDIA_VISIBLE_DEVICES"] == claim.status.mig_uuid
    assert claim.status.mig_uuid not in made
    assert (claim.spec.gpu_uuid, claim.spec.mig_placement.start) != (PLACE.gpu, PLACE.start)
    await bare.delete(pod)
    await bare.eventually(lambda: nothing_but(bare, made), "ours is gone, theirs is not")


async def test_s06_a_slice_that_others_leave_no_room_for_is_made_elsewhere(bare: AgentNode) -> None:
    theirs = await by_others(bare, SlicePlacement(GPUS[0], MEDIA, 0, 1))
    await bare.start_agent()
    pod = await bare.scheduled("a", MEDIA, 3)
    environment = await bare.run(pod)
    (claim,) = await bare.claims()
    assert claim.spec.gpu_uuid == GPUS[1]
    assert environment["NVIDIA_VISIBLE_DEVICES"] == claim.status.mig_uuid
    await bare.eventually(lambda: has_event(bare, "SliceMoved"), "an event says so")
    assert await bare.start(pod) == environment
    await bare.delete(pod)
    await bare.eventually(lambda: nothing_but(bare, [theirs]), "it goes with its pod")


async def test_s06_a_pod_whose_slice_no_gpu_has_room_for_is_marked_with_the_reason(bare: AgentNode) -> None:
    theirs = [await by_others(bare, SlicePlacement(gpu, MEDIA, 0, 1)) for gpu in GPUS[:2]]
    await bare.start_agent()
    pod = await bare.scheduled("a", MEDIA, 3)
    with pytest.raises(PluginError, match=r"no other placement for 1g.5gb\+me is free"):
        await bare.run(pod)
    (claim,) = await bare.claims()
    assert "no other placement for 1g.5gb+me is free on this node" in claim.lost
    await bare.delete(pod)
    await bare.eventually(lambda: nothing_but(bare, theirs), "it leaves nothing behind")


async def test_s09_slices_of_others_count_for_the_limit_of_their_profile(bare: AgentNode) -> None:
    await by_others(bare, SlicePlacement(GPUS[0], MEDIA, 0, 1))
    await bare.start_agent()
    report = await bare.accelerator()
    (foreign,) = report.status.gpus[0].foreign
    assert (foreign.start, foreign.size, foreign.profile) == (0, 1, MEDIA)
    view = View()
    view.nodes.changed(None, await bare.client.get(kinds.NODES, NODE, into=Node))
    view.accelerators.changed(None, report)
    first, second = (view.fleet.nodes[NODE].gpus[uuid] for uuid in GPUS[:2])
    shape = first.grid.shape(MEDIA)
    assert shape is not None
    assert list(first.grid.places(first.state, shape)) == []
    assert len(list(second.grid.places(second.state, shape))) > 1


class Meddler:
    """Runs a function just before the first claim becomes `processing`."""

    def __init__(self, inner: Transport, act: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._act: Callable[[], Awaitable[None]] | None = act

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        if self._act is not None and request.method == "PATCH" and b"processing" in (request.body or b""):
            act, self._act = self._act, None
            await act()
        return await self._inner.send(request, stream=stream, timeout=timeout)

    async def close(self) -> None:
        await self._inner.close()


async def parts(bare: AgentNode) -> tuple[EmulatedDriver, SliceRecords, Slicing]:
    folder = bare.settings.state_dir
    driver = EmulatedDriver(NODE, folder)
    await driver.configure({})
    records = SliceRecords(folder)
    records.load()
    return driver, records, Slicing(driver, records, Locks())


def no_claims(bare: AgentNode) -> ClaimStore:
    return ClaimStore(bare.client, NODE, names.DAS_NAMESPACE)


async def by_others(bare: AgentNode, place: SlicePlacement) -> str:
    driver = EmulatedDriver(NODE, bare.settings.state_dir)
    await driver.configure({})
    return (await driver.create(place)).uuid


async def nothing_but(node: AgentNode, uuids: list[str]) -> bool:
    return not await node.claims() and not node.cdi_files() and await node.slices() == uuids
