"""Pods with a share of a GPU: the scheduler decides node, GPU and MiB, and hands them to the binder.

The binder is played by the tests: it binds a pod as its BindRequest says, or lets the request fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from apportion.apis import kinds, names, shared_gpus
from apportion.apis.custom_resources.accelerators import SHARING
from apportion.apis.custom_resources.bind_requests import FAILED, BindRequest
from apportion.apis.identities import DeviceUUID
from apportion.apis.meta import to_wire
from apportion.apis.shared_gpus import SharedGpu
from apportion.cluster import errors
from apportion.scheduler import cycles
from tests.builders import nodes
from tests.scheduler.cluster import NAMESPACE, ApiCluster, background, scheduling, until

A100_MIB = 40960
GPU = names.NVIDIA_GPU


@pytest.fixture
async def sharing(each_cluster: ApiCluster) -> AsyncIterator[ApiCluster]:
    await switch(each_cluster, on=True)
    yield each_cluster
    with suppress(errors.NotFound):
        await each_cluster.client.delete(kinds.KAI_CONFIGS, names.KAI_CONFIG_OBJECT)
    for item in await bind_requests(each_cluster):
        with suppress(errors.NotFound):
            await each_cluster.client.delete(kinds.BIND_REQUESTS, item.metadata.name, namespace="default")


async def switch(cluster: ApiCluster, *, on: bool) -> None:
    body = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"admission": {"gpuSharing": on}}}
    await cluster.client.apply(kinds.KAI_CONFIGS, body, field_manager="test")


async def bind_requests(cluster: ApiCluster) -> list[BindRequest]:
    found = await cluster.client.list(kinds.BIND_REQUESTS, namespace="default", into=BindRequest)
    return sorted(found.items, key=lambda item: item.metadata.name)


async def requested(cluster: ApiCluster, *pods: str) -> list[BindRequest]:
    """Wait until there are requests for exactly these pods."""

    async def found() -> list[BindRequest] | None:
        known = await bind_requests(cluster)
        return known if [item.spec.pod_name for item in known] == sorted(pods) else None

    return await until(found)


async def bind(cluster: ApiCluster, request: BindRequest, device: str = "") -> None:
    """What the binder does in the end. The kubelet may have given another `device`."""
    spec = request.spec
    assert spec.received_gpu is not None
    given = [
        SharedGpu(group, DeviceUUID(device or planned), spec.received_gpu.memory_mib)
        for group, planned in zip(spec.selected_gpu_groups, spec.selected_devices, strict=True)
    ]
    labels = {"metadata": {"uid": spec.pod_uid, "labels": shared_gpus.group_labels(spec.selected_gpu_groups)}}
    await cluster.client.patch(kinds.PODS, spec.pod_name, labels, namespace="default")
    annotations = {
        names.RECEIVED_RESOURCE_TYPE: names.FRACTION,
        names.SHARED_GPUS: shared_gpus.encode_shared_gpus(given),
    }
    await cluster.client.bind("default", spec.pod_name, spec.pod_uid, spec.selected_node, annotations=annotations)


async def fail(cluster: ApiCluster, request: BindRequest, reason: str) -> None:
    patch = {"status": {"phase": FAILED, "reason": reason}}
    name = request.metadata.name
    await cluster.client.patch(kinds.BIND_REQUESTS, name, patch, namespace="default", subresource="status")


@asynccontextmanager
async def binding(cluster: ApiCluster) -> AsyncIterator[None]:
    """A binder that carries out every request."""

    async def work() -> None:
        done: set[str] = set()
        while True:
            for request in await bind_requests(cluster):
                if request.metadata.uid not in done and not request.failed:
                    done.add(request.metadata.uid)
                    with suppress(errors.NotFound, errors.Conflict):
                        await bind(cluster, request)
            await asyncio.sleep(0.02)

    async with background(work()):
        yield


async def shared_node(cluster: ApiCluster, name: str = "n1", gpus: int = 2) -> list[str]:
    await cluster.node(name, gpus=gpus, mig=0, resources={GPU: str(gpus)})
    return cluster.gpus[name]


def share(**options: Any) -> dict[str, Any]:
    return {"scheduler": names.KAI_SCHEDULER, **options}


async def test_g04_a_share_is_handed_to_the_binder_with_node_gpu_and_mib(sharing: ApiCluster) -> None:
    gpus = await shared_node(sharing)
    async with scheduling(sharing):
        uid = await sharing.pod("a", **share(fraction="0.333"))
        (request,) = await requested(sharing, "a")
    spec, (owner,) = request.spec, request.metadata.owner_references
    assert (spec.pod_uid, owner.uid, owner.kind) == (uid, uid, "Pod")
    assert spec.selected_node == "n1"
    assert spec.received_resource_type == names.FRACTION
    assert spec.received_gpu is not None
    assert (spec.received_gpu.count, spec.received_gpu.portion) == (1, "0.333")
    assert spec.received_gpu.memory_mib == 333 * A100_MIB // 1000
    assert spec.selected_devices[0] in gpus
    assert spec.selected_gpu_groups == [shared_gpus.new_group(uid, "n1", spec.selected_devices[0])]
    assert not (await sharing.get("a")).spec.node_name


async def test_g04_pods_join_the_group_of_a_shared_gpu_until_it_is_full(sharing: ApiCluster) -> None:
    await shared_node(sharing)
    async with scheduling(sharing), binding(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        await sharing.bound("a")
        await sharing.pod("b", **share(memory=A100_MIB // 2))
        await sharing.bound("b")
        await sharing.pod("c", **share(fraction="0.5"))
        await sharing.bound("c")
    a, b, c = await bind_requests(sharing)
    assert a.spec.selected_gpu_groups == b.spec.selected_gpu_groups
    assert a.spec.selected_gpu_groups != c.spec.selected_gpu_groups
    assert a.spec.selected_devices != c.spec.selected_devices


async def test_g05_a_request_that_was_not_carried_out_is_reported_and_replaced(sharing: ApiCluster) -> None:
    await shared_node(sharing)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        (first,) = await requested(sharing, "a")
        await fail(sharing, first, "the reservation pod has not started")
        assert "the reservation pod has not started" in await sharing.waits("a")
        await bind(sharing, await until(lambda: another(sharing, first)))
        await sharing.bound("a")


async def test_g05_a_pod_is_bound_to_another_node_after_its_request_failed(sharing: ApiCluster) -> None:
    """The next leader remembers every node on which requests for the pod failed."""
    for name in ("n1", "n2", "n3"):
        await shared_node(sharing, name)
    failed: list[str] = []
    for _ in range(3):
        async with scheduling(sharing):
            if not failed:
                await sharing.pod("a", **share(fraction="0.5"))
                (request,) = await requested(sharing, "a")
            else:
                request = await until(lambda before=request: another(sharing, before))  # type: ignore[misc]
            assert request.spec.selected_node not in failed
            assert list(request.failed_nodes) == failed
            failed.append(request.spec.selected_node)
            await fail(sharing, request, "the reservation pod has not started")
            await sharing.waits("a")
        await sharing.end_lease()
    async with scheduling(sharing):
        last = await until(lambda: another(sharing, request))
        assert last.spec.selected_node == failed[0], "no node is left: the one that failed longest ago"
        await bind(sharing, last)
        await sharing.bound("a")


async def test_g05_a_pod_stays_on_the_only_node_that_can_take_it(sharing: ApiCluster) -> None:
    await shared_node(sharing)
    await sharing.node("n2")
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        (first,) = await requested(sharing, "a")
        await fail(sharing, first, "the reservation pod has not started")
        second = await until(lambda: another(sharing, first))
        assert (first.spec.selected_node, second.spec.selected_node) == ("n1", "n1")


async def test_g11_the_next_leader_counts_what_is_requested(sharing: ApiCluster) -> None:
    await shared_node(sharing, gpus=1)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.7"))
        (request,) = await requested(sharing, "a")
    await sharing.end_lease()
    async with scheduling(sharing):
        await sharing.pod("b", **share(fraction="0.5"))
        assert "insufficient free memory" in await sharing.waits("b")
        await sharing.pod("c", **share(fraction="0.3"))
        requests = await requested(sharing, "a", "c")
        assert requests[1].spec.selected_gpu_groups == request.spec.selected_gpu_groups
        for each in requests:
            await bind(sharing, each)
        await sharing.bound("a", "c")
        await sharing.delete("a")
        await requested_for(sharing, "b")


async def test_g11_a_request_of_another_leader_may_come_before_the_turn_of_its_pod(
    sharing: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared_node(sharing, gpus=1)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.3"))
        (request,) = await requested(sharing, "a")
        await sharing.pod("b", **share(fraction="0.3"))
        written = await requested(sharing, "a", "b")
    await sharing.end_lease()
    for each in written:
        await sharing.client.delete(kinds.BIND_REQUESTS, each.metadata.name, namespace="default")
    came = asyncio.Event()

    async def others_write(until: float) -> float:
        if not came.is_set():
            came.set()
            body = to_wire(request)
            body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace", "ownerReferences")}
            await sharing.client.create(kinds.BIND_REQUESTS, body)
            await asyncio.sleep(1)  # the informer shows it
        return until

    monkeypatch.setattr(cycles, "_others_had_a_turn", others_write)
    async with scheduling(sharing):
        found = await requested(sharing, "a", "b")
        assert found[0].spec == request.spec
        assert came.is_set()


async def requested_for(cluster: ApiCluster, pod: str) -> BindRequest:
    async def found() -> BindRequest | None:
        return next((item for item in await bind_requests(cluster) if item.spec.pod_name == pod), None)

    return await until(found)


async def test_g05_what_the_kubelet_gave_counts_and_not_what_was_planned(sharing: ApiCluster) -> None:
    gpus = await shared_node(sharing)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.6"))
        (request,) = await requested(sharing, "a")
        planned = request.spec.selected_devices[0]
        other = next(gpu for gpu in gpus if gpu != planned)
        await bind(sharing, request, other)
        await sharing.bound("a")
        await sharing.pod("b", **share(fraction="0.4"))
        joined = await requested_for(sharing, "b")
    assert joined.spec.selected_devices == [other]
    assert joined.spec.selected_gpu_groups == request.spec.selected_gpu_groups


async def test_g05_the_name_of_a_group_that_is_on_another_gpu_is_not_given_again(sharing: ApiCluster) -> None:
    """It was named by a pod that did not fit on the GPU that the kubelet gave; other pods share that GPU now."""
    gpus = await shared_node(sharing)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.6"))
        (first,) = await requested(sharing, "a")
        await sharing.pod("b", **share(fraction="0.4"))
        joined = await requested_for(sharing, "b")
        assert joined.spec.selected_gpu_groups == first.spec.selected_gpu_groups
        (planned,) = first.spec.selected_devices
        other = next(gpu for gpu in gpus if gpu != planned)
        await bind(sharing, joined, other)
        await sharing.bound("b")
        await sharing.pod("c", **share(fraction="0.5"))
        apart = await requested_for(sharing, "c")
        assert apart.spec.selected_devices == [planned], "the others have the GPU that the kubelet gave"
        spec = msgspec.structs.replace(apart.spec, selected_gpu_groups=first.spec.selected_gpu_groups)
        await bind(sharing, msgspec.structs.replace(apart, spec=spec), other)
        await sharing.bound("c")
        await fail(sharing, first, "the pod does not fit")
        second = await until(lambda: another(sharing, first))
    assert second.spec.selected_devices == [planned]
    assert second.spec.selected_gpu_groups != first.spec.selected_gpu_groups


async def another(cluster: ApiCluster, before: BindRequest) -> BindRequest | None:
    """The request that replaced this one."""
    found = next((item for item in await bind_requests(cluster) if item.spec.pod_uid == before.spec.pod_uid), before)
    return found if found.metadata.uid != before.metadata.uid else None


async def test_g01_pods_wait_while_sharing_is_off(sharing: ApiCluster) -> None:
    await shared_node(sharing)
    await switch(sharing, on=False)
    async with scheduling(sharing), binding(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        assert "GPU sharing is not enabled" in await sharing.waits("a")
        await switch(sharing, on=True)
        await sharing.bound("a")


async def test_g10_gpus_that_no_agent_reports_are_shared_by_what_the_kubelet_offers(sharing: ApiCluster) -> None:
    await plain_node(sharing, "labelled", {names.GPU_MEMORY_LABEL: "16000"})
    async with scheduling(sharing), binding(sharing):
        for name, options in {"a": share(fraction="0.5"), "b": share(memory=8000), "c": share(memory=8001)}.items():
            await sharing.pod(name, **options)
            await sharing.bound(name)
        await sharing.pod("d", **share(memory=8000))
        assert "(needs 8000 MiB; the most free on one GPU is 7999 of 16000 MiB)" in await sharing.waits("d")
        await sharing.pod("whole", limits={GPU: "1"})
        assert "too few free GPUs" in await sharing.waits("whole")
    a, b, c = (await bind_requests(sharing))[:3]
    assert a.spec.selected_devices == b.spec.selected_devices == [shared_gpus.slot("labelled", 0)]
    assert c.spec.selected_devices == [shared_gpus.slot("labelled", 1)]


async def test_g10_a_node_that_hides_the_memory_of_its_gpus_takes_fractions_only(sharing: ApiCluster) -> None:
    await plain_node(sharing, "plain", {})
    async with scheduling(sharing), binding(sharing):
        await sharing.pod("a", **share(memory=2000))
        assert f"no label {names.GPU_MEMORY_LABEL}" in await sharing.waits("a")
        await sharing.pod("b", **share(fraction="0.5"))
        await sharing.bound("b")


@pytest.mark.parametrize("labels", [{names.GPU_REPLICAS_LABEL: "2"}, {names.GPU_PRODUCT_LABEL: "Tesla-T4-SHARED"}])
async def test_g10_a_node_whose_device_plugin_divides_gpus_itself_takes_no_shares(
    sharing: ApiCluster, labels: dict[str, str]
) -> None:
    await plain_node(sharing, "divided", {names.GPU_MEMORY_LABEL: "16000", **labels})
    async with scheduling(sharing), binding(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        assert "no GPU that takes shares" in await sharing.waits("a")
        await sharing.pod("whole", limits={GPU: "1"})
        await sharing.bound("whole")


async def test_g12_a_node_whose_runtime_ignores_the_variable_takes_no_shares(sharing: ApiCluster) -> None:
    await shared_node(sharing)
    report = await sharing.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    others = report["status"]["conditions"]
    ignored = {
        "type": SHARING,
        "status": "False",
        "reason": "VariableIgnored",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with scheduling(sharing), binding(sharing):
        await conditions(sharing, [*others, ignored])
        await sharing.pod("a", **share(fraction="0.5"))
        assert "no GPU that takes shares" in await sharing.waits("a")
        await sharing.pod("whole", limits={GPU: "1"})
        await sharing.bound("whole")
        await conditions(sharing, others)
        await sharing.bound("a")


async def conditions(cluster: ApiCluster, listed: list[dict[str, Any]]) -> None:
    patch = {"status": {"conditions": listed}}
    await cluster.client.patch(kinds.NODE_ACCELERATORS, "n1", patch, namespace=NAMESPACE, subresource="status")


async def plain_node(cluster: ApiCluster, name: str, labels: dict[str, str], gpus: int = 2) -> None:
    """A node on which another device plugin serves the GPUs."""
    node = nodes.node(name, labels=labels, resources={GPU: str(gpus)}, mig_capable=False)
    await cluster.client.create(kinds.NODES, {"metadata": node["metadata"]})
    await cluster.client.patch(kinds.NODES, name, {"status": node["status"]}, subresource="status")
