"""Reservations that are lost, foreign, doubled, stuck or rejected: each has an answer, none ends a running pod."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.custom_resources.das_operator import DASOperator
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import encode_sharers, reservation_name, sharers_of
from apportion.binder import reservations
from apportion.cluster.transport import HttpRequest, Response
from tests.binder.cluster import KAI, MIB, SharingCluster, binding, bound_or_failed
from tests.binder.stand_in_kubelet import RESERVATIONS
from tests.builders import pods
from tests.scheduler.cluster import until
from tests.scheduler.cut_connections import Onwards


async def two_sharers(cluster: SharingCluster) -> tuple[list[str], list[str], Pod]:
    gpus = await cluster.node()
    groups = await cluster.request(await cluster.pod("a"), gpus[0])
    await cluster.running("a")
    await cluster.request(await cluster.pod("b", fraction="0.25"), gpus[0], groups=groups)
    await cluster.running("b")
    return gpus, groups, await cluster.one_reservation(sharers=2)


async def remove(cluster: SharingCluster, reservation: Pod, grace: int = 0) -> None:
    cluster.kubelet.reservations_may_vanish = True
    await cluster.client.delete(kinds.PODS, reservation.metadata.name, namespace=RESERVATIONS, grace=grace)


async def another(cluster: SharingCluster, before: Pod, sharers: int) -> Pod:
    async def found() -> Pod | None:
        live = [pod for pod in await cluster.reservations() if not pod.metadata.deleting]
        if len(live) != 1 or live[0].uid == before.uid or names.RESERVED_GPU not in live[0].metadata.annotations:
            return None
        return live[0] if len(sharers_of(live[0].metadata)) == sharers else None

    return await until(found)


async def foreign(cluster: SharingCluster, name: str, group: str, **annotations: str) -> None:
    labels = {names.COMPONENT_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group}
    body = pods.pod(name, namespace=RESERVATIONS, labels=labels, node="n1", annotations=annotations, gpus=1)
    body["spec"]["serviceAccountName"] = names.RESERVATION_SERVICE_ACCOUNT
    await cluster.client.create(kinds.PODS, body, namespace=RESERVATIONS)


async def still_run(cluster: SharingCluster, *uids: str) -> None:
    for name, uid in zip(("a", "b"), uids, strict=False):
        pod = await cluster.get(name)
        assert pod.uid == uid
        assert pod.status.phase == "Running"
        assert not pod.metadata.deleting


async def test_g05_a_lost_reservation_is_made_again_for_the_pods_that_run(shared: SharingCluster) -> None:
    async with binding(shared):
        gpus, groups, first = await two_sharers(shared)
        await remove(shared, first, grace=1)
        again = await another(shared, first, sharers=2)
        assert again.metadata.name == first.metadata.name
        assert sharers_of(again.metadata) == sharers_of(first.metadata)
        await still_run(shared, (await shared.get("a")).uid, (await shared.get("b")).uid)
        await shared.events("a", "GPUReservationLost")
        await shared.request(await shared.pod("c", fraction="0.25"), gpus[0], groups=groups)
        await shared.running("c")
        await shared.check()
        for name in "abc":
            await shared.delete(name)
        await shared.empty()


async def test_g05_a_reservation_lost_while_nobody_led_is_made_again(embedded: SharingCluster) -> None:
    async with binding(embedded):
        _, _, first = await two_sharers(embedded)
    await remove(embedded, first)
    async with binding(embedded):
        await another(embedded, first, sharers=2)
        await embedded.check()


async def test_g05_g11_a_gpu_in_use_is_held_again_before_the_next_one_is_shared(shared: SharingCluster) -> None:
    """The kubelet gives the first free GPU to whichever reservation comes first."""
    gpus = await shared.node()
    async with binding(shared):
        await shared.request(await shared.pod("a", memory=MIB - 1000), gpus[0])
        await shared.running("a")
    await shared.end_lease()
    await remove(shared, (await shared.reservations())[0])
    await shared.request(await shared.pod("b", memory=MIB - 1000), gpus[1])
    async with binding(shared):
        await shared.running("b")
        await shared.check()


@pytest.mark.parametrize("reported", [True, False])
async def test_g04_g05_a_gpu_on_which_pods_of_another_group_run_is_not_shared(
    shared: SharingCluster, *, reported: bool
) -> None:
    """The reservation of these pods came back on another GPU, so the kubelet hands theirs out again."""
    gpus = await shared.node(reported=reported, label="" if reported else str(MIB))
    async with binding(shared):
        await shared.request(await shared.pod("a", memory=MIB - 1000), gpus[0])
        await shared.running("a")
        shared.kubelet.devices["n1"].reverse()
        first = await shared.one_reservation(sharers=1)
        await remove(shared, first)
        await another(shared, first, sharers=1)
        await shared.request(await shared.pod("b", memory=MIB - 1000), gpus[1])
        assert "pods of another group run on GPU" in await shared.failed("b")
        await shared.one_reservation(sharers=1)
        assert not shared.kubelet.problems, shared.kubelet.problems
        await shared.delete("a")
        await shared.withdraw("b")
        await shared.request(await shared.get("b"), gpus[1])
        await shared.running("b")


async def test_g05_a_pod_that_was_deleted_while_it_joined_blocks_no_gpu(shared: SharingCluster) -> None:
    gpus, elsewhere = await shared.node(gpus=1), await shared.node("n2", gpus=1)
    wire, joins, on = shared.api.wire(), asyncio.Event(), asyncio.Event()

    async def joining_waits(request: HttpRequest, onwards: Onwards) -> Response:
        if request.method == "PATCH" and f"/{RESERVATIONS}/pods/" in request.path:
            joins.set()
            await on.wait()
        return await onwards()

    async with binding(shared, wire):
        groups = await shared.request(await shared.pod("a"), gpus[0])
        await shared.running("a")
        wire.fault = joining_waits
        await shared.request(await shared.pod("b"), gpus[0], groups=groups)
        await joins.wait()
        await shared.delete("b")
        await until(lambda: not_requested(shared, "b"))
        await shared.request(await shared.pod("later"), elsewhere[0], node="n2")
        await shared.running("later")  # so the binder has seen that the request before is gone
        wire.fault = None
        on.set()
        await shared.delete("a")
        await shared.delete("later")
        await until(lambda: nothing_reserved(shared))
        await shared.request(await shared.pod("c"), gpus[0])
        await shared.running("c")


async def not_requested(cluster: SharingCluster, name: str) -> bool:
    found = await cluster.client.list(kinds.BIND_REQUESTS, into=Bare)
    return name not in [item.metadata.name for item in found.items]


async def nothing_reserved(cluster: SharingCluster) -> bool:
    return not await cluster.reservations()


async def test_g10_a_gpu_that_the_device_plugin_hands_out_twice_is_shared_by_one_group(shared: SharingCluster) -> None:
    gpus = await shared.node(reported=False, label=str(MIB))
    shared.kubelet.devices["n1"] = shared.kubelet.devices["n1"][:1] * 2
    shared.kubelet.divides_gpus = True
    async with binding(shared):
        for name, gpu in zip("ab", gpus, strict=True):
            await shared.request(await shared.pod(name, memory=MIB - 1000), gpu)
        results = [await bound_or_failed(shared, name) for name in "ab"]
        assert sorted(results) == [False, True]
        assert not shared.kubelet.problems, shared.kubelet.problems


async def test_g05_a_group_whose_reservation_came_back_on_another_gpu_takes_no_pods(embedded: SharingCluster) -> None:
    async with binding(embedded):
        gpus, groups, first = await two_sharers(embedded)
        embedded.kubelet.devices["n1"].reverse()
        await remove(embedded, first)
        again = await another(embedded, first, sharers=2)
        assert again.metadata.annotations[names.RESERVED_GPU] == gpus[1]
        for pod in ("a", "b"):
            (message,) = await embedded.events(pod, "GPUReservationChanged")
            assert f"holds GPU {gpus[1]}, but pods of its group run on GPU {gpus[0]}" in message
        await embedded.events(again.metadata.name, "GPUReservationChanged", RESERVATIONS)
        await embedded.request(await embedded.pod("c", fraction="0.1"), gpus[0], groups=groups)
        assert "takes no further pods" in await embedded.failed("c")
        for name in "abc":
            await embedded.delete(name)
        await embedded.empty()


async def test_g05_a_slot_whose_reservation_came_back_on_another_gpu_takes_no_pods(embedded: SharingCluster) -> None:
    slots = await embedded.node(reported=False)
    groups = await embedded.request(await embedded.pod("a"), slots[0])
    async with binding(embedded):
        await embedded.running("a")
        first = await embedded.one_reservation(sharers=1)
    embedded.kubelet.devices["n1"].reverse()
    await remove(embedded, first)
    async with binding(embedded):
        await another(embedded, first, sharers=1)
        await embedded.events("a", "GPUReservationChanged")
        await embedded.request(await embedded.pod("c", fraction="0.1"), slots[0], groups=groups)
        assert "takes no further pods" in await embedded.failed("c")


async def test_g05_a_foreign_reservation_is_adopted_with_the_pods_of_its_label(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    group = "7e8d9f5e-0000-4000-8000-000000000001"
    await foreign(embedded, "gpu-reservation-n1-xyz12", group)
    bound = {names.GPU_GROUP_LABEL: group}
    pod = pods.our_pod("a", fraction="0.5", labels=bound, node="n1", annotations={"received-resource-type": "Fraction"})
    await embedded.client.create(kinds.PODS, pod)
    async with binding(embedded):
        reservation = await embedded.one_reservation(sharers=1)
        assert reservation.metadata.name == "gpu-reservation-n1-xyz12"
        await embedded.request(await embedded.pod("b"), gpus[0], groups=[group])
        await embedded.running("b")
        await embedded.one_reservation(sharers=2)
        await embedded.request(await embedded.pod("c"), gpus[0], groups=[group])
        assert "does not fit" in await embedded.failed("c")
        for name in "abc":
            await embedded.delete(name)
        await embedded.empty()


async def test_g05_a_foreign_reservation_without_pods_is_deleted_after_a_while(embedded: SharingCluster) -> None:
    await embedded.node()
    await embedded.config(resourceReservation={"allocationTimeout": 1})
    await foreign(embedded, "gpu-reservation-n1-xyz12", "7e8d9f5e-0000-4000-8000-000000000001")
    async with binding(embedded):
        await embedded.empty()


async def test_g05_of_two_reservations_the_one_stays_whose_gpu_the_pods_have(embedded: SharingCluster) -> None:
    async with binding(embedded):
        gpus, (group,), first = await two_sharers(embedded)
        await foreign(embedded, "gpu-reservation-n1-abc12", group)

        async def alone() -> bool:
            found = await embedded.reservations()
            return [pod.uid for pod in found] == [first.uid]

        await until(alone)
        await embedded.request(await embedded.pod("c", fraction="0.25"), gpus[0], groups=[group])
        await embedded.running("c")
        await embedded.check()


async def test_g05_a_reservation_that_gets_no_gpu_is_given_up(shared: SharingCluster) -> None:
    gpus = await shared.node()
    shared.kubelet.silent.add("n1")
    await shared.config(resourceReservation={"allocationTimeout": 1})
    async with binding(shared):
        groups = await shared.request(await shared.pod("a"), gpus[0])
        await shared.request(await shared.pod("b"), gpus[0], groups=groups)
        for name in ("a", "b"):
            assert "has no GPU yet" in await shared.failed(name)

        async def gone() -> bool:
            return not await shared.reservations()

        await until(gone)
        shared.kubelet.silent.clear()
        await shared.withdraw("a")
        await shared.request(await shared.get("a"), gpus[0])
        await shared.running("a")
        await shared.check()


async def test_g05_a_rejected_reservation_fails_its_requests_and_is_deleted(shared: SharingCluster) -> None:
    gpus = await shared.node()
    shared.kubelet.rejecting.add("n1")
    async with binding(shared):
        await shared.request(await shared.pod("a"), gpus[0])
        assert "UnexpectedAdmissionError: Allocate failed" in await shared.failed("a")
        await shared.delete("a")
        await shared.empty()


async def test_g05_a_reservation_that_fails_under_running_pods_is_made_again(embedded: SharingCluster) -> None:
    embedded.kubelet.reservations_may_vanish = True
    async with binding(embedded):
        gpus, _, first = await two_sharers(embedded)
        failed = {"status": {"phase": "Failed", "reason": "NodeShutdown", "message": "the node was shut down"}}
        name = first.metadata.name
        await embedded.client.patch(kinds.PODS, name, failed, namespace=RESERVATIONS, subresource="status")
        again = await another(embedded, first, sharers=2)
        assert again.metadata.annotations[names.RESERVED_GPU] == gpus[0]
        await embedded.check()


async def test_g05_a_pod_waits_for_the_end_of_a_terminating_reservation(shared: SharingCluster) -> None:
    shared.kubelet.ending_seconds = 0.5
    gpus = await shared.node(gpus=1)
    async with binding(shared):
        groups = await shared.request(await shared.pod("a"), gpus[0])
        await shared.running("a")
        first = await shared.one_reservation(sharers=1)
        await shared.delete("a")

        async def terminating() -> bool:
            return any(pod.metadata.deleting for pod in await shared.reservations())

        await until(terminating)
        await shared.request(await shared.pod("b"), gpus[0], groups=groups)
        await shared.running("b")
        assert (await another(shared, first, sharers=1)).metadata.name == first.metadata.name
        await shared.check()


async def test_g05_a_sharer_that_succeeded_is_taken_off_at_once(embedded: SharingCluster) -> None:
    async with binding(embedded):
        gpus, groups, _ = await two_sharers(embedded)
        await embedded.api.set_phase("a", "Succeeded")
        await embedded.one_reservation(sharers=1)
        await embedded.request(await embedded.pod("c", fraction="0.75"), gpus[0], groups=groups)
        await embedded.running("c")
        await embedded.check()


async def test_g05_the_end_of_a_sharer_that_lost_its_label_is_found(
    shared: SharingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "UNSEEN_SECONDS", 0.2)
    gpus = await shared.node()
    async with binding(shared):
        await shared.request(await shared.pod("a"), gpus[0])
        await shared.running("a")
        removed = {"labels": {names.GPU_GROUP_LABEL: None}, "annotations": {names.SHARED_GPUS: None}}
        await shared.client.patch(kinds.PODS, "a", {"metadata": removed}, namespace="default")
        await shared.one_reservation(sharers=1)
        await shared.delete("a")
        await shared.empty()


async def test_g05_a_request_that_the_scheduler_withdraws_frees_the_share(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    embedded.kubelet.silent.add("n1")
    async with binding(embedded):
        groups = await embedded.request(await embedded.pod("a"), gpus[0])
        await embedded.request(await embedded.pod("b"), gpus[0], groups=groups)
        await until(lambda: embedded.listed("a"))
        await embedded.withdraw("a")
        await until(lambda: embedded.listed("b"))
        embedded.kubelet.silent.clear()
        embedded.kubelet.wake()
        await embedded.running("b")
        assert not (await embedded.get("a")).spec.node_name
        await embedded.check()


async def test_g05_a_pod_that_runs_on_another_gpu_of_the_node_is_taken_off(shared: SharingCluster) -> None:
    """Another request had brought it there."""
    gpus = await shared.node(gpus=2)
    async with binding(shared):
        for name, gpu in zip("ab", gpus, strict=True):
            await shared.request(await shared.pod(name), gpu)
        runs, _ = await shared.running("a", "b")
        mine, other = sorted(await shared.reservations(), key=lambda pod: runs.uid not in sharers_of(pod.metadata))
        both = sharers_of(mine.metadata) | sharers_of(other.metadata)
        written = {"metadata": {"annotations": {names.SHARERS: encode_sharers(both)}}}
        await shared.client.patch(kinds.PODS, other.metadata.name, written, namespace=RESERVATIONS)

        async def alone() -> bool:
            return all(len(sharers_of(pod.metadata)) == 1 for pod in await shared.reservations())

        await until(alone)
        await shared.check()


async def test_g07_runtime_class_of_reservations(embedded: SharingCluster) -> None:
    gpus = await embedded.node(gpus=4)

    async def runtime_class(name: str, number: int) -> str | None:
        pod = await embedded.pod(name)
        (group,) = await embedded.request(pod, gpus[number])
        await embedded.running(name)
        made = await embedded.client.get(
            kinds.PODS,
            reservation_name("n1", group),
            namespace=RESERVATIONS,
            into=Pod,  # type: ignore[arg-type]
        )
        return made.spec.runtime_class_name

    async with binding(embedded):
        assert await runtime_class("missing", 0) is None
    for name in ("nvidia", "mine"):
        body = {"metadata": {"name": name}, "handler": name}
        await embedded.client.create(kinds.RUNTIME_CLASSES, body)
    async with binding(embedded):
        assert await runtime_class("default", 1) == "nvidia"
    operator: dict[str, Any] = {"metadata": {"name": "cluster"}, "spec": {"emulatedMode": "enabled"}}
    await embedded.client.create(kinds.DAS_OPERATORS, operator, namespace=names.DAS_NAMESPACE, into=DASOperator)
    async with binding(embedded):
        assert await runtime_class("emulated", 2) is None
    await embedded.config(resourceReservation={"runtimeClassName": "mine"})
    async with binding(embedded):
        assert await runtime_class("chosen", 3) == "mine"


async def test_r03_the_lease_is_where_the_binder_runs(embedded: SharingCluster) -> None:
    async with binding(embedded):

        async def held() -> bool:
            leases = await embedded.client.list(kinds.LEASES, namespace=KAI)
            return [lease["metadata"]["name"] for lease in leases.items] == ["binder"]

        await until(held)
