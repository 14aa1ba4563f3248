"""Pods that wait because of a queue or a group: event, condition and `apportion why` say the same, with numbers."""

from __future__ import annotations

import json
from typing import Any

from apportion.apis import kinds, names
from apportion.cli import why
from apportion.cluster import errors
from apportion.core.evictions.room import Consolidation
from tests.builders import groups
from tests.cli.cli_runner import called
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling, until

GPU = names.NVIDIA_GPU
NOW = "Cannot be scheduled now: "


async def queues(cluster: ApiCluster, *made: dict[str, Any]) -> None:
    for queue in made:
        await cluster.client.create(kinds.QUEUES, queue)


async def pod(cluster: ApiCluster, name: str, queue: str, gpus: int = 1, **options: Any) -> None:
    await cluster.pod(name, limits={GPU: str(gpus)}, labels={names.QUEUE_LABEL: queue}, **options)


async def told(cluster: ApiCluster, name: str) -> str:
    """What the condition, the event and `why` say alike."""

    async def alike() -> str | None:
        condition = await cluster.waits(name)
        listing = await cluster.client.list(kinds.EVENTS, namespace="default")
        events = [
            (int(event["metadata"]["resourceVersion"]), event["message"])
            for event in listing.items
            if event["involvedObject"]["name"] == name and event["reason"] == "FailedScheduling"
        ]
        answer = await asked(cluster, name)
        return condition if events and condition == max(events)[1] == answer["sentence"] else None

    return await until(alike)


async def asked(cluster: ApiCluster, name: str) -> dict[str, Any]:
    code, out, err = await called(why.command, pod=name, output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def limited(name: str, limit: float, quota: float = 8) -> dict[str, Any]:
    return groups.queue(name, resources={"gpu": {"quota": quota, "limit": limit}})


async def test_x01_q02_q12_queues_that_run_no_pods_are_told_with_what_to_do(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=2, mig=0, resources={GPU: "2"})
    await queues(
        cluster,
        groups.queue("team", gpus=2),
        groups.queue("vision", parent="team", gpus=1),
        groups.queue("one", parent="two"),
        groups.queue("two", parent="one"),
        groups.queue("leaf", parent="two"),
        groups.queue("orphan", parent="missing"),
    )
    label = names.QUEUE_LABEL
    async with scheduling(cluster):
        for name in ("visoin", "team", "leaf", "orphan", "default-queue"):
            await pod(cluster, f"in-{name}", name)
        assert await told(cluster, "in-visoin") == (
            f"{NOW}queue visoin does not exist: create it, or name another one in the label {label} "
            "(did you mean vision?)."
        )
        assert await told(cluster, "in-team") == (
            f"{NOW}queue team has child queues, and only queues without children run pods: "
            f"name one of them in the label {label} (vision)."
        )
        assert await told(cluster, "in-leaf") == (
            f"{NOW}queue leaf cannot be used: the parents form a cycle (two -> one -> two): "
            "change spec.parentQueue of one of them."
        )
        assert await told(cluster, "in-orphan") == (
            f"{NOW}queue orphan cannot be used: its parent queue missing does not exist: create it, "
            "or change spec.parentQueue of queue orphan."
        )
        assert (await told(cluster, "in-default-queue")).startswith(
            f"{NOW}queue default-queue does not exist, and pods without the label {label} belong to it: create it"
        )
        assert (await asked(cluster, "in-leaf"))["layer"] == "queue"

        await cluster.client.delete(kinds.QUEUES, "vision")
        await cluster.bound("in-team")


async def test_x01_why_plans_with_the_settings_of_the_scheduler_that_leads(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await queues(cluster, groups.queue("q", gpus=4))
    for number in (1, 2):
        await cluster.node(f"n{number}", gpus=2, mig=0, resources={GPU: "2"})
        await pod(cluster, f"m{number}", "q", owner=f"owner-{number}", node=f"n{number}")
    async with scheduling(cluster, consolidation=Consolidation.OFF, policy="pack"):
        await pod(cluster, "large", "q", gpus=2)
        assert (await told(cluster, "large")).startswith("0/2 nodes are available"), "it moves nobody"
    lease = await cluster.client.get(kinds.LEASES, names.SCHEDULER_LEASE, namespace=NAMESPACE)
    published = lease["metadata"]["annotations"]
    assert (published[names.POLICY], published[names.CONSOLIDATION]) == ("pack", "off")
    assert "note" not in await asked(cluster, "large")

    for changed in ("everything", None):
        body = {"metadata": {"annotations": {names.CONSOLIDATION: changed}}}
        await cluster.client.patch(kinds.LEASES, names.SCHEDULER_LEASE, body, namespace=NAMESPACE)
        answer = await asked(cluster, "large")
        assert answer["code"] == "EvictionPlanned", "pods are moved unless the scheduler says otherwise"
        assert answer["note"] == (
            "The settings of the scheduler could not be read. Assumed: --policy fragmentation, --consolidation gpus."
        )
    async with scheduling(cluster):
        await until(lambda: settings_are(cluster, "gpus"))


async def settings_are(cluster: ApiCluster, consolidation: str) -> bool:
    lease = await cluster.client.get(kinds.LEASES, names.SCHEDULER_LEASE, namespace=NAMESPACE)
    return bool(lease["metadata"]["annotations"].get(names.CONSOLIDATION) == consolidation)


async def test_q12_a_queue_that_cannot_be_read_is_told_with_field_value_and_fix(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources={GPU: "1"})
    name = f"{kinds.QUEUES.plural}.{kinds.QUEUES.group}"
    definition = await cluster.client.get(kinds.CUSTOM_RESOURCE_DEFINITIONS, name)
    for version in definition["spec"]["versions"]:  # as of an older installation, which checked nothing
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    await cluster.client.replace(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)

    async def made() -> bool:
        try:
            await queues(cluster, groups.queue("bad", resources={"gpu": {"quota": 1, "overQuotaWeight": -2}}))
        except errors.Invalid:
            return False
        return True

    await until(made)
    await queues(cluster, groups.queue("below", parent="bad"))
    async with scheduling(cluster):
        await pod(cluster, "x", "bad")
        await pod(cluster, "y", "below")
        fault = "spec.resources.gpu.overQuotaWeight: '-2': use a number of 0 or more"
        assert await told(cluster, "x") == f"{NOW}queue bad cannot be used: {fault}."
        assert await told(cluster, "y") == (
            f"{NOW}queue below cannot be used: its parent queue bad is invalid: {fault}."
        )


async def test_x01_q05_limits_and_quotas_are_told_with_what_admits_the_pod(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=4, mig=0, resources={GPU: "4"})
    await queues(cluster, limited("a", 1), groups.queue("b", gpus=1))
    async with scheduling(cluster):
        await pod(cluster, "a1", "a")
        await pod(cluster, "b1", "b", priority=100)
        await cluster.bound("a1", "b1")
        await pod(cluster, "a2", "a")
        await pod(cluster, "b2", "b", priority=100)
        assert await told(cluster, "a2") == (
            f"{NOW}queue a would exceed its limit: 1 of 1 GPU in use, 1 more requested. "
            "Cheapest change: increase spec.resources.gpu.limit of queue a from 1 to 2."
        )
        assert await told(cluster, "b2") == (
            f"{NOW}queue b would exceed its quota with pods that are not preemptible: "
            "1 of 1 GPU in use by these, 1 more requested. "
            "Cheapest change: increase spec.resources.gpu.quota of queue b from 1 to 2."
        )
        answer = await asked(cluster, "a2")
        assert (answer["layer"], answer["code"]) == ("queue", "OverLimit")
        (change,) = answer["cheapestChange"]["queues"]
        assert change == {"queue": "a", "field": "spec.resources.gpu.limit", "before": "1", "after": "2"}
        await cluster.client.patch(kinds.QUEUES, "a", {"spec": {"resources": {"gpu": {"limit": 2}}}})
        await cluster.client.patch(kinds.QUEUES, "b", {"spec": {"resources": {"gpu": {"quota": 2}}}})
        await cluster.bound("a2", "b2")


async def test_x01_q07_gangs_are_told_what_is_missing_and_whether_they_can_ever_start(
    each_cluster: ApiCluster,
) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=2, mig=0, resources={GPU: "2"})
    await queues(cluster, groups.queue("a", gpus=2), groups.queue("b"))
    parts = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": 2}]
    for group in (groups.pod_group("parts", 3, subGroups=parts), groups.pod_group("large", 3)):
        await cluster.client.create(kinds.POD_GROUPS, group)
    async with scheduling(cluster):
        labels = {names.QUEUE_LABEL: "a", "kai.scheduler/subgroup-name": "worker"}
        await cluster.pod("part", limits={GPU: "1"}, labels=labels, annotations={names.POD_GROUP: "parts"})
        for number in range(3):
            await pod(cluster, f"large-{number}", "a", annotations={names.POD_GROUP: "large"})
        assert await told(cluster, "part") == (
            f"{NOW}the group needs 3 pods to start, and 1 exists, subgroup head has 0 of 1, "
            "subgroup worker has 1 of 2: "
            "2 pods are missing from the minimum; create them, or reduce minMember."
        )
        text = await told(cluster, "large-1")
        assert "Queue a: 0 of a fair share of 2 GPUs in use (quota 2); 3 more would exceed it" in text
        assert "The group can never be scheduled here: the 3 pods that start together request 3 GPUs" in text
        assert text.endswith("and the cluster has 2. Cheapest change: add a node like n1.")
        assert (await asked(cluster, "large-0"))["layer"] == "gang"


async def test_x01_q07_gated_members_of_a_gang_are_told(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=4, mig=0, resources={GPU: "4"})
    await queues(cluster, groups.queue("a", gpus=4))
    await cluster.client.create(kinds.POD_GROUPS, groups.pod_group("g", 4))
    async with scheduling(cluster):
        for number in range(4):
            gates = ["example.com/wait"] if number > 1 else []
            await pod(cluster, f"g{number}", "a", annotations={names.POD_GROUP: "g"}, gates=gates)

        async def says(text: str) -> bool:
            return text in await told(cluster, "g0")

        start = f"{NOW}the group needs 4 pods to start, and 4 exist, "
        end = "from the minimum; remove {} scheduling gates, or reduce minMember."
        await until(lambda: says(f"{start}2 of them gated: 2 pods are missing {end.format('their')}"))
        no_gates: dict[str, Any] = {"spec": {"schedulingGates": None}}
        await cluster.client.patch(kinds.PODS, "g2", no_gates, namespace="default")
        await until(lambda: says(f"{start}1 of them gated: 1 pod is missing {end.format('its')}"))
        await cluster.client.patch(kinds.PODS, "g3", no_gates, namespace="default")
        await cluster.bound("g0", "g1", "g2", "g3")


async def test_x01_q06_a_pod_whose_queue_is_at_its_share_is_told_where_it_stands(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=2, mig=0, resources={GPU: "2"})
    await queues(cluster, groups.queue("a", gpus=1), groups.queue("b", gpus=1))
    async with scheduling(cluster):
        for name in ("a1", "b1"):
            await pod(cluster, name, name[0])
        await cluster.bound("a1", "b1")
        await pod(cluster, "b2", "b")
        text = await told(cluster, "b2")
        assert "Queue b: 1 of a fair share of 1 GPU in use (quota 1); 1 more would exceed it" in text
        standing = (await asked(cluster, "b2"))["queue"]
        assert (standing["used"], standing["fairShare"], standing["requested"]) == (1000, 1000, 1000)
        assert standing["nothingReclaimedBecause"] == "AtFairShare"


async def test_x01_q06_a_pod_for_which_others_are_evicted_is_told_so(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1, mig=0, resources={GPU: "1"})
    await queues(cluster, groups.queue("a"), groups.queue("b", gpus=1))
    async with scheduling(cluster):
        await pod(cluster, "a1", "a", terminationGracePeriodSeconds=600)
        await cluster.bound("a1")
    await pod(cluster, "b1", "b")
    answer = await asked(cluster, "b1")
    assert answer["sentence"] == f"{NOW}no node has room now; a place on n1 becomes free by evicting 1 pod."
    await cluster.end_lease()
    async with scheduling(cluster):
        assert await told(cluster, "b1") == (
            f"{NOW}a place on n1 is reserved for the pod, and 1 pod that was evicted for it is terminating."
        )
        await pod(cluster, "b2", "b")
        assert "Queue b: 1 of a fair share of 1 GPU in use (quota 1)" in await told(cluster, "b2")
