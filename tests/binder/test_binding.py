"""Carrying out BindRequests: first sharers, joiners, several GPUs, and what is refused."""

from __future__ import annotations

import pytest

from apportion.apis import kinds, names
from apportion.apis.shared_gpus import groups_of, shared_gpus_of
from tests.binder.cluster import MIB, OTHER, SharingCluster, binding
from tests.builders import pods
from tests.scheduler.cluster import until


async def test_g05_g06_the_first_pod_gets_a_reservation_and_its_gpu(shared: SharingCluster) -> None:
    gpus = await shared.node()
    async with binding(shared):
        pod = await shared.pod("a")
        (group,) = await shared.request(pod, gpus[0])
        (bound,) = await shared.running("a")
        reservation = await shared.one_reservation(sharers=1)
        await shared.check()
        meta, spec = reservation.metadata, reservation.spec
        assert meta.labels == {"app": "kai-resource-reservation", "runai-gpu-group": group}
        assert (
            meta.annotations["run.ai/reserve_for_gpu_index"] == meta.annotations["apportion.io/planned-gpu"] == gpus[0]
        )
        assert meta.annotations["karpenter.sh/do-not-disrupt"] == "true"
        assert spec.node_name == "n1"
        assert spec.priority_class_name == "system-node-critical"
        assert [toleration.operator for toleration in spec.tolerations if not toleration.key] == ["Exists"]
        assert spec.service_account_name == "kai-resource-reservation"
        assert spec.containers[0].resources.limits["nvidia.com/gpu"] == "1"
        assert bound.metadata.labels["runai-gpu-group"] == group
        assert bound.metadata.annotations["received-resource-type"] == "Fraction"
        assert [(gpu.group, gpu.device, gpu.mib) for gpu in shared_gpus_of(bound.metadata)] == [
            (group, gpus[0], MIB // 2)
        ]
        assert shared.kubelet.seen[pod.uid] == {
            "NVIDIA_VISIBLE_DEVICES": gpus[0],
            "GPU_PORTION": "0.5",
            "RUNAI_NUM_OF_GPUS": "0.5",
        }
        made = await shared.client.get(kinds.CONFIG_MAPS, "a-1234567-shared-gpu-0", namespace="default")
        assert made["immutable"] is True
        assert made["metadata"]["ownerReferences"][0]["uid"] == pod.uid
        (message,) = await shared.events("a", "Scheduled")
        assert message == f"Successfully assigned default/a to n1: {MIB // 2} MiB of GPU {gpus[0]}"
        await shared.delete("a")
        await shared.empty()


async def test_g04_pods_of_two_namespaces_share_one_gpu(shared: SharingCluster) -> None:
    gpus = await shared.node()
    async with binding(shared):
        first = await shared.pod("a")
        groups = await shared.request(first, gpus[0])
        second = await shared.pod("b", OTHER, memory=MIB // 4)
        await shared.request(second, gpus[0], groups=groups)
        await shared.running("a")
        await shared.running("b", namespace=OTHER)
        await shared.one_reservation(sharers=2)
        await shared.check()
        assert shared.kubelet.seen[second.uid]["GPU_PORTION"] == "0.25"
        await shared.delete("a")
        await shared.one_reservation(sharers=1)
        assert not shared.kubelet.problems
        await shared.delete("b", OTHER)
        await shared.empty()


async def test_g05_one_pod_on_several_gpus(shared: SharingCluster) -> None:
    gpus = await shared.node(gpus=3)
    async with binding(shared):
        pod = await shared.pod("a", devices=3, fraction="0.25")
        groups = await shared.request(pod, gpus)
        (bound,) = await shared.running("a")
        assert groups_of(bound.metadata) == tuple(sorted(groups))
        assert bound.metadata.labels[names.GPU_GROUP_LABEL] == groups[0]
        assert len(await shared.reservations()) == 3
        await shared.check()
        await shared.delete("a")
        await shared.empty()


async def test_g05_another_gpu_than_planned_is_used_if_the_pod_fits_on_it(embedded: SharingCluster) -> None:
    gpus = await embedded.node(memory=(MIB, 2 * MIB))
    embedded.kubelet.devices["n1"].reverse()
    async with binding(embedded):
        pod = await embedded.pod("a")
        await embedded.request(pod, gpus[0])
        (bound,) = await embedded.running("a")
        (gpu,) = shared_gpus_of(bound.metadata)
        assert (gpu.device, gpu.mib) == (gpus[1], MIB)
        await embedded.check()


async def test_g05_another_gpu_than_planned_on_which_the_pod_does_not_fit_is_given_back(
    shared: SharingCluster,
) -> None:
    gpus = await shared.node(memory=(MIB, MIB // 4))
    shared.kubelet.devices["n1"].reverse()
    shared.kubelet.silent.add("n1")
    async with binding(shared):
        pod = await shared.pod("a", memory=MIB // 2)
        groups = await shared.request(pod, gpus[0])
        small = await shared.pod("b", memory=MIB // 8)
        await shared.request(small, gpus[0], groups=groups)
        await until(lambda: shared.listed("a"))
        shared.kubelet.silent.clear()
        shared.kubelet.wake()
        reason = await shared.failed("a")
        assert f"holds GPU {gpus[1]}, planned was {gpus[0]}" in reason
        assert f"takes {MIB // 2} MiB" in reason
        await shared.running("b")
        await shared.one_reservation(sharers=1)
        await shared.check()
        (message,) = await shared.events("a", "BindingFailed")
        assert message == f"Not bound to node n1: {reason}"
        assert not (await shared.get("a")).metadata.labels
        await shared.delete("b")
        await shared.withdraw("a")
        shared.kubelet.devices["n1"].reverse()
        await shared.request(pod, gpus[0])
        await shared.running("a")
        await shared.check()


async def test_g05_a_pod_that_does_not_fit_beside_the_others_is_refused(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    async with binding(embedded):
        groups = await embedded.request(await embedded.pod("a", fraction="0.7"), gpus[0])
        await embedded.running("a")
        await embedded.request(await embedded.pod("b", fraction="0.4"), gpus[0], groups=groups)
        assert "and 28672 of 40960 MiB are in use" in await embedded.failed("b")
        await embedded.one_reservation(sharers=1)


async def test_g05_a_pod_deleted_before_it_is_bound_leaves_nothing(shared: SharingCluster) -> None:
    gpus = await shared.node()
    shared.kubelet.silent.add("n1")
    async with binding(shared):
        await shared.request(await shared.pod("a"), gpus[0])
        await until(shared.reservations)
        await shared.delete("a")
        await shared.empty()


async def test_g06_a_foreign_config_map_is_neither_used_nor_replaced(shared: SharingCluster) -> None:
    gpus = await shared.node()
    foreign = {"metadata": {"name": "a-1234567-shared-gpu-0", "namespace": "default"}, "data": {"x": "y"}}
    await shared.client.create(kinds.CONFIG_MAPS, foreign)
    async with binding(shared):
        pod = await shared.pod("a")
        await shared.request(pod, gpus[0])
        said = await shared.failed("a")
        assert "ConfigMap a-1234567-shared-gpu-0 does not belong to this pod: annotation runai/shared-gpu" in said
        assert "delete this pod, and create it again without the annotation" in said
        found = await shared.client.get(kinds.CONFIG_MAPS, "a-1234567-shared-gpu-0", namespace="default")
        assert found["data"] == {"x": "y"}
        await shared.client.delete(kinds.CONFIG_MAPS, "a-1234567-shared-gpu-0", namespace="default")
        await shared.withdraw("a")
        await shared.delete("a")
        await shared.empty()


async def test_g06_the_config_map_of_an_earlier_attempt_does_not_block_the_next(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    pod = await embedded.pod("a")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": pod.uid}
    metadata = {"name": "a-1234567-shared-gpu-0", "namespace": "default", "ownerReferences": [owner]}
    old = {"metadata": metadata, "data": {"NVIDIA_VISIBLE_DEVICES": "GPU-old"}, "immutable": True}
    await embedded.client.create(kinds.CONFIG_MAPS, old)
    async with binding(embedded):
        await embedded.request(pod, gpus[0])
        await embedded.running("a")
        await embedded.check()


async def test_g03_pods_that_admission_does_not_change_are_told_why(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    for namespace in (names.KAI_NAMESPACE, "default"):
        body = pods.our_pod("a", namespace=namespace, fraction="0.5")
        await embedded.client.create(kinds.PODS, body, namespace=namespace)
        pod = await embedded.get("a", namespace)
        async with binding(embedded):
            await embedded.request(pod, gpus[0])
            said = await embedded.failed("a", namespace)
        if namespace == "default":
            assert "created without it; delete the pod and create it again" in said
        else:
            assert "pods in namespace kai-scheduler are not changed at admission" in said
            assert "create the pod in another namespace" in said


async def test_g12_cdi_names_of_gpus(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    await embedded.config(cdiEnabled=True)
    async with binding(embedded):
        pod = await embedded.pod("a", devices=2)
        await embedded.request(pod, gpus)
        await embedded.running("a")
        named = ",".join(f"k8s.device-plugin.nvidia.com/gpu={gpu}" for gpu in gpus)
        assert embedded.kubelet.seen[pod.uid]["NVIDIA_VISIBLE_DEVICES"] == named


@pytest.mark.parametrize(
    ("label", "options", "mib"),
    [("40960", {"memory": 1000}, 1000), (str(MIB * 2**20), {}, MIB // 2), ("", {}, 500)],
)
async def test_g10_nodes_whose_gpus_nobody_reports(
    embedded: SharingCluster, label: str, options: dict[str, int], mib: int
) -> None:
    slots = await embedded.node(reported=False, label=label)
    async with binding(embedded):
        groups = await embedded.request(await embedded.pod("a", **options), slots[0])
        (bound,) = await embedded.running("a")
        (gpu,) = shared_gpus_of(bound.metadata)
        assert (gpu.device, gpu.mib) == ("n1/0", mib)
        (message,) = await embedded.events("a", "Scheduled")
        assert message.startswith(
            "Successfully assigned default/a to n1: " + (f"{mib} MiB" if label else "0.5") + " of"
        )
        assert gpu.uuid == embedded.kubelet.seen[bound.uid][names.VISIBLE_DEVICES]
        await embedded.request(await embedded.pod("b"), slots[0], groups=groups)
        await embedded.running("b")
        await embedded.check()


async def test_g06_the_pod_group_of_a_request_is_written_on_the_pod(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    pod = await embedded.pod("a")
    await embedded.request(pod, gpus[0])
    patch = {"metadata": {"annotations": {names.POD_GROUP: "pg-a"}}}
    await embedded.client.patch(kinds.BIND_REQUESTS, "a", patch, namespace="default")
    async with binding(embedded):
        (bound,) = await embedded.running("a")
        assert bound.metadata.annotations[names.POD_GROUP] == "pg-a"


async def test_g10_memory_shares_need_a_gpu_whose_memory_is_known(embedded: SharingCluster) -> None:
    slots = await embedded.node(reported=False)
    async with binding(embedded):
        await embedded.request(await embedded.pod("a", memory=1000), slots[0])
        assert "only fractions" in await embedded.failed("a")
        assert not await embedded.reservations()


async def test_g05_requests_that_can_never_be_right_fail_with_the_reason(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    async with binding(embedded):
        await embedded.request(await embedded.pod("two", devices=2), gpus[0])
        assert "requests 2 GPUs" in await embedded.failed("two")
        pod = await embedded.pod("again")
        await embedded.delete("again")
        successor = await embedded.pod("again")
        await embedded.request(pod, gpus[0], owner=successor)
        assert "does not exist any more" in await embedded.failed("again")
        elsewhere = await embedded.pod("elsewhere")
        await embedded.client.bind("default", "elsewhere", elsewhere.uid, "n2")
        await embedded.request(elsewhere, gpus[0])
        assert "bound to node n2" in await embedded.failed("elsewhere")
        assert not await embedded.reservations()


async def test_q11_a_bound_pod_names_the_pod_group_that_the_scheduler_made_for_it(embedded: SharingCluster) -> None:
    gpus = await embedded.node()
    await embedded.request(await embedded.pod("a"), gpus[0])
    named = {"metadata": {"annotations": {names.POD_GROUP: "pg-a"}}}
    await embedded.client.patch(kinds.BIND_REQUESTS, "a", named, namespace="default")
    async with binding(embedded):
        (bound,) = await embedded.running("a")
    assert bound.metadata.annotations[names.POD_GROUP] == "pg-a"
