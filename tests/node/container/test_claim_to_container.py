"""From claim to environment and back: the agent with a kubelet, on one node."""

from __future__ import annotations

import pytest

from apportion.apis import kinds
from apportion.apis.custom_resources import claims
from tests.builders.pods import container
from tests.node.agent_node import GPUS, AgentNode

ONE = "mig.das.com/1g.5gb"
TWO = "mig.das.com/2g.10gb"


async def test_s06_a_claim_goes_from_created_to_in_use_with_its_uuid(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    name = f"{pod['metadata']['uid']}-main-0"
    assert (await node.get(name)).state == claims.CREATED
    environment = await node.run(pod)
    claim = await node.get(name)
    assert claim.state == claims.IN_USE
    assert claim.status.mig_uuid.startswith("MIG-")
    assert environment == {"NVIDIA_VISIBLE_DEVICES": claim.status.mig_uuid, "CUDA_VISIBLE_DEVICES": "0"}
    (condition,) = claim.status.conditions
    assert (condition.type, condition.status, condition.reason) == ("State", "True", "inUse")
    assert condition.message == "Allocation is inUse"


async def test_s07_two_profiles_in_one_container_give_one_list_in_claim_order(node: AgentNode) -> None:
    for number in range(5):  # the kubelet's order of calls and names is random
        pod = await node.pod(f"two-{number}", {ONE: 1, TWO: 1})
        await node.claim(pod, "1g.5gb", 4, index=0)
        await node.claim(pod, "2g.10gb", 0, index=1)
        await node.bind(pod)
        environment = await node.run(pod)
        uid = pod["metadata"]["uid"]
        wanted = [(await node.get(f"{uid}-main-{index}")).status.mig_uuid for index in (0, 1)]
        assert environment["NVIDIA_VISIBLE_DEVICES"] == ",".join(wanted)
        assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"
        await node.delete(pod)
        await node.eventually(node.clean, "everything is gone")


async def test_s07_twelve_slices_are_listed_by_number_not_by_text(node: AgentNode) -> None:
    pod = await node.pod("many", {ONE: 12})
    for index in range(12):
        await node.claim(pod, "1g.5gb", index % 6, gpu=index // 6, index=index)
    await node.bind(pod)
    environment = await node.run(pod)
    uid = pod["metadata"]["uid"]
    wanted = [(await node.get(f"{uid}-main-{index}")).status.mig_uuid for index in range(12)]
    assert environment["NVIDIA_VISIBLE_DEVICES"].split(",") == wanted


async def test_s08_a_restart_of_the_container_keeps_its_slice(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    first = await node.run(pod)
    await node.end(pod)
    assert await node.start(pod) == first
    assert len(await node.slices()) == 1


async def test_s08_everything_goes_when_the_pod_is_deleted(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    await node.delete(pod)
    await node.eventually(node.clean, "claim, slice and CDI file are gone")


async def test_s08_everything_goes_when_the_pod_completes(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    await node.end(pod)
    await node.report(pod, "Succeeded")
    await node.eventually(node.clean, "claim, slice and CDI file are gone")


async def test_s06_a_pod_deleted_by_force_keeps_its_slice_while_it_runs(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    await node.vanish(pod)
    with pytest.raises(AssertionError):
        await node.eventually(node.clean, "nothing", seconds=1.0)
    assert len(await node.slices()) == len(await node.claims()) == len(node.cdi_files()) == 1
    await node.end(pod)
    await node.eventually(node.clean, "it goes with the last process")


async def test_s08_a_claim_made_before_its_pod_is_bound_is_left_alone(node: AgentNode) -> None:
    pod = await node.pod("a", {ONE: 1})
    name = await node.claim(pod, "1g.5gb", 0)
    with pytest.raises(AssertionError):
        await node.eventually(node.clean, "nothing", seconds=1.0)
    assert not (await node.get(name)).metadata.deleting


async def test_s06_a_claim_deleted_before_it_was_used_goes_at_once(node: AgentNode) -> None:
    pod = await node.pod("a", {ONE: 1})
    name = await node.claim(pod, "1g.5gb", 0)
    await node.client.delete(kinds.ALLOCATION_CLAIMS, name, namespace="das-operator")
    await node.eventually(node.clean, "the claim is gone")


async def test_s08_a_claim_in_use_outlives_its_deletion_until_the_pod_ends(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.run(pod)
    (claim,) = await node.claims()
    await node.client.delete(kinds.ALLOCATION_CLAIMS, claim.name, namespace="das-operator")
    with pytest.raises(AssertionError):
        await node.eventually(node.clean, "nothing", seconds=1.0)
    assert await node.slices() == [claim.status.mig_uuid]
    await node.delete(pod)
    await node.eventually(node.clean, "now it goes")


async def test_s08_a_pod_that_the_kubelet_refused_is_freed_and_explained(node: AgentNode) -> None:
    pod = await node.scheduled("a")
    await node.report(pod, "Failed", reason="UnexpectedAdmissionError", message="no healthy devices present")
    await node.eventually(node.clean, "the claim is gone")
    events = await node.eventually(node.events, "an event")
    text = events[0]["message"]
    assert "no healthy devices present" in text
    assert "1g.5gb" in text
    assert GPUS[0] in text


async def test_s06_a_container_that_ended_for_good_frees_its_slice_while_its_pod_runs_on(node: AgentNode) -> None:
    pod = await node.pod(
        "a", containers=[container("once", limits={ONE: "1"}), container("on", limits={ONE: "1"})], restart="Never"
    )
    await node.claim(pod, "1g.5gb", 0, containers=["once"])
    kept = await node.claim(pod, "1g.5gb", 1, containers=["on"])
    await node.bind(pod)
    await node.admit(pod)
    await node.start(pod, "once")
    await node.start(pod, "on")
    await node.end(pod, "once")
    over = {"name": "once", "containerID": "x://id-once", "state": {"terminated": {"exitCode": 0}}}
    runs = {"name": "on", "containerID": "x://id-on", "state": {"running": {}}}
    await node.report(pod, "Running", containerStatuses=[full(over), full(runs)])
    await node.eventually(lambda: _only(node, kept), "one claim is left")
    assert len(await node.slices()) == len(node.cdi_files()) == 1


async def test_s07_an_init_container_shares_the_slice_and_gets_the_later_list(node: AgentNode) -> None:
    pod = await node.pod(
        "a", containers=[container("main", limits={ONE: "1", TWO: "1"})], init=[container("first", limits={ONE: "1"})]
    )
    await node.claim(pod, "1g.5gb", 4, containers=["first", "main"], owner="main", index=0)
    await node.claim(pod, "2g.10gb", 0, containers=["main"], owner="main", index=1)
    await node.bind(pod)
    await node.admit(pod)
    early = await node.start(pod, "first")
    await node.end(pod, "first")
    assert await node.start(pod, "main") == early
    assert len(early["NVIDIA_VISIBLE_DEVICES"].split(",")) == 2
    assert len(await node.slices()) == 2


async def _only(node: AgentNode, name: str) -> bool:
    return [claim.name for claim in await node.claims()] == [name]


def full(status: dict[str, object]) -> dict[str, object]:
    return {"image": "busybox", "imageID": "", "ready": False, "restartCount": 0, **status}
