"""Claims that somebody wrote by hand: refused or reported, and nobody's slice is destroyed for them. S06, S08."""

from __future__ import annotations

import pytest

from apportion.apis import kinds, names
from apportion.apis.custom_resources import claims
from apportion.apis.placements import SlicePlacement
from apportion.emulation.gpus.driver import EmulatedDriver
from pocketkube.kubelet.devices.plugin import PluginError
from tests.node.agent_node import GPUS, NODE, AgentNode
from tests.node.test_failures import message_has


async def test_s08_a_claim_for_a_strangers_place_does_not_make_the_slice_ours(bare: AgentNode) -> None:
    driver = EmulatedDriver(NODE, bare.settings.state_dir)
    await driver.configure({})
    theirs = await driver.create(SlicePlacement(GPUS[0], "2g.10gb", 0, 2))
    ghost = {"metadata": {"namespace": "default", "name": "ghost", "uid": "no-such-pod"}}
    await bare.claim(ghost, "2g.10gb", 0, state=claims.IN_USE)
    await bare.start_agent()
    await bare.eventually(lambda: no_claims(bare), "a claim of no pod goes")
    assert await bare.slices() == [theirs.uuid]


async def test_s06_an_overlap_found_at_the_start_is_shown_and_nothing_is_destroyed(node: AgentNode) -> None:
    first = await node.scheduled("first", "3g.20gb", 0)
    environment = await node.run(first)
    await node.stop_agent()
    second = await node.scheduled("second", "2g.10gb", 2)
    name = f"{second['metadata']['uid']}-main-0"
    status = {"status": {"state": claims.IN_USE, "migUUID": "MIG-made-up"}}
    await node.client.patch(kinds.ALLOCATION_CLAIMS, name, status, namespace=names.DAS_NAMESPACE, subresource="status")
    await node.start_agent()
    await node.eventually(lambda: message_has(node, "which was recorded earlier"), "the overlap is shown")
    assert await node.start(first) == environment
    assert len(await node.slices()) == 1


async def test_s06_a_claim_that_was_moved_by_hand_keeps_its_slice_and_says_so(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    (claim,) = await node.claims()
    moved = {"spec": {"migPlacement": {"start": 5, "size": 1}}}
    await node.client.patch(kinds.ALLOCATION_CLAIMS, claim.name, moved, namespace=names.DAS_NAMESPACE)
    await node.end(pod)
    with pytest.raises(PluginError, match=r"was changed to 1g.5gb at 5\+1 .* after its slice was created"):
        await node.start(pod)
    assert await node.slices() == [claim.status.mig_uuid]
    await node.delete(pod)
    await node.eventually(node.clean, "it goes with its pod")


async def test_s06_a_claim_of_another_node_is_none_of_ours(node: AgentNode) -> None:
    pod = await node.pod("a", {"mig.das.com/1g.5gb": 1})
    name = await node.claim(pod, "1g.5gb", 0)
    elsewhere = {"spec": {"nodename": "node-2"}}
    await node.client.patch(kinds.ALLOCATION_CLAIMS, name, elsewhere, namespace=names.DAS_NAMESPACE)
    await node.bind(pod)
    with pytest.raises(PluginError, match="but there are 0 claims"):
        await node.run(pod)
    assert await node.slices() == []


async def no_claims(node: AgentNode) -> bool:
    return not await node.claims()
