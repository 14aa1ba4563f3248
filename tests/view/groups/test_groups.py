"""Which group and queue a pod belongs to: by its PodGroup, by its owners, by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.identities import PodUID
from apportion.apis.kinds import Kind
from apportion.core.groups import Subgroup
from apportion.view.view import View
from tests.builders import groups, pods
from tests.scheduler.cluster import ApiCluster
from tests.view.followed import Followed, followed

Json = dict[str, Any]
IN_GANG = {names.POD_GROUP: "gang"}
KEY = "default/gang"


@pytest.fixture
async def made(each_cluster: ApiCluster) -> AsyncIterator[Followed]:
    async with followed(each_cluster) as found:
        yield found


async def relabel(made: Followed, kind: Kind, name: str, queue: str | None) -> None:
    patch = {"metadata": {"labels": {names.QUEUE_LABEL: queue}}}
    await made.client.patch(kind, name, patch, namespace="default")


# PodGroups


async def test_q07_a_pod_waits_for_its_pod_group_and_gets_its_queue_priority_and_preemptibility(made: Followed) -> None:
    await made.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 90})
    await made.pod("a", annotations=IN_GANG, labels={names.QUEUE_LABEL: "own"})
    assert "no PodGroup of this name exists in namespace default" in await made.problem("a")

    group = groups.pod_group("gang", 3, queue="team", priorityClassName="high", preemptibility="non-preemptible")
    await made.create(kinds.POD_GROUPS, group)
    request = await made.read("a", queue="team", group="gang")
    assert (request.priority, request.priority_class, request.preemptibility) == (90, "high", "non-preemptible")
    assert not request.preemptible
    gang = made.view.fleet.gang_of(request)
    assert (gang.key, gang.minimum, gang.subgroups) == (KEY, 3, ())
    assert gang.created

    await made.client.patch(kinds.POD_GROUPS, "gang", {"spec": {"queue": None, "minMember": 2}}, namespace="default")
    request = await made.read("a", queue="own")
    assert made.view.fleet.gang_of(request).minimum == 2

    await made.client.delete(kinds.POD_GROUPS, "gang", namespace="default")
    assert "PodGroup" in await made.problem("a")
    assert KEY not in made.view.fleet.gangs


async def test_q07_subgroups_are_part_of_the_gang_and_pods_name_theirs(made: Followed) -> None:
    parts = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 4}]
    await made.create(kinds.POD_GROUPS, groups.pod_group("gang", 5, subGroups=parts))
    await made.pod("a", annotations=IN_GANG, labels={names.SUBGROUP_LABEL: "worker"})
    request = await made.read("a", group="gang", subgroup="worker")
    assert made.view.fleet.gang_of(request).subgroups == (Subgroup("leader", 1), Subgroup("worker", 4))


async def test_q07_a_priority_class_that_does_not_exist_is_named(made: Followed) -> None:
    await made.create(kinds.POD_GROUPS, groups.pod_group("gang", priorityClassName="missing"))
    await made.pod("a", annotations=IN_GANG)
    assert "'missing': no such PriorityClass exists" in await made.problem("a")
    await made.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "missing"}, "value": 60})
    await made.read("a", priority=60)


async def test_q07_a_bound_pod_is_charged_to_the_queue_of_its_group_when_that_changes(made: Followed) -> None:
    await made.create(kinds.QUEUES, groups.queue("one"))
    await made.create(kinds.QUEUES, groups.queue("two"))
    await made.create(kinds.POD_GROUPS, groups.pod_group("gang", queue="one"))
    await made.pod("a", annotations=IN_GANG, node="n1", limits={"cpu": "2"})
    accounts = made.view.fleet.accounts
    await made.until(lambda: accounts.used("one").cpu == 2000)
    await made.client.patch(kinds.POD_GROUPS, "gang", {"spec": {"queue": "two"}}, namespace="default")
    await made.until(lambda: accounts.used("two").cpu == 2000)
    assert accounts.used("one").cpu == 0


# Owners


async def test_q02_the_label_of_the_topmost_owner_counts_before_that_of_the_pod(made: Followed) -> None:
    above = await made.create(kinds.DEPLOYMENTS, _deployment("web", queue="team"))
    between = await made.create(kinds.REPLICA_SETS, _replica_set("web-1", above, queue="between"))
    await made.pod("a", owner=between, labels={names.QUEUE_LABEL: "own"})
    request = await made.read("a", queue="team")
    assert request.group is None, "each pod of a Deployment is a group of its own"
    await relabel(made, kinds.DEPLOYMENTS, "web", None)
    await made.read("a", queue="between")
    await relabel(made, kinds.REPLICA_SETS, "web-1", None)
    await made.read("a", queue="own")
    await relabel(made, kinds.DEPLOYMENTS, "web", "other")
    await made.read("a", queue="other")


async def test_q11_the_pods_of_a_job_are_one_group_of_minimum_one(made: Followed) -> None:
    job = await made.create(kinds.JOBS, groups.job("train", queue="team"))
    for name in "ab":
        await made.pod(name, owner=job)
    one, other = await made.read("a", queue="team"), await made.read("b", queue="team")
    assert one.group == other.group == f"pg-train-{job['metadata']['uid']}"
    gang = made.view.fleet.gang_of(one)
    assert (gang.minimum, gang.created) == (1, job["metadata"]["creationTimestamp"])


async def test_q11_the_kind_of_an_owner_can_be_installed_later_and_its_chain_is_followed_upwards(
    made: Followed,
) -> None:
    jobs = [{"name": "worker", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3}}}]
    job_sets = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
    await made.install(job_sets)
    body = groups.owner(job_sets.api_version, "JobSet", "set", queue="team", spec={"replicatedJobs": jobs})
    above = await made.create(job_sets, body)
    job = await made.create(kinds.JOBS, groups.job("set-worker-0", above=above))
    await made.pod("a", owner=job, labels={"jobset.sigs.k8s.io/replicatedjob-name": "worker"})
    request = await made.read("a", queue="team", group=f"pg-set-{above['metadata']['uid']}")
    assert made.view.fleet.gang_of(request).minimum == 6


async def test_q11_a_pod_can_own_others(made: Followed) -> None:
    applications = Kind("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication")
    await made.install(applications)
    above = await made.create(
        applications, groups.owner(applications.api_version, "SparkApplication", "app", queue="team")
    )
    await made.pod("driver", owner=above, scheduler=names.DEFAULT_SCHEDULER)
    driver = await made.client.get(kinds.PODS, "driver", namespace="default")
    await made.pod("executor", owner={"apiVersion": "v1", "kind": "Pod", **driver})
    await made.read("executor", queue="team", group=f"pg-app-{above['metadata']['uid']}")
    await relabel(made, applications, "app", "other")
    await made.read("executor", queue="other")


async def test_q11_numbers_in_an_owner_that_are_none_are_named(made: Followed) -> None:
    tf_jobs = Kind("kubeflow.org", "v1", "tfjobs", "TFJob")
    await made.install(tf_jobs)
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": -2}}}
    above = await made.create(tf_jobs, groups.owner(tf_jobs.api_version, "TFJob", "train", spec=spec))
    await made.pod("a", owner=above)
    assert "spec.tfReplicaSpecs.Worker.replicas: -2" in await made.problem("a")
    await made.client.patch(
        tf_jobs, "train", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}}, namespace="default"
    )
    request = await made.read("a")
    assert made.view.fleet.gang_of(request).minimum == 2


# Since when a group runs


async def test_q10_a_group_has_started_when_its_minimum_runs(made: Followed) -> None:
    await made.create(kinds.POD_GROUPS, groups.pod_group("gang", 2))
    for number, name in enumerate("abc"):
        await made.pod(name, annotations=IN_GANG, node="n1")
        await _start(made, name, number)
    await made.pod("alone", node="n1")
    await _start(made, "alone", 5)
    gangs = made.view.fleet.gangs
    alone = (await made.client.get(kinds.PODS, "alone", namespace="default"))["metadata"]["uid"]
    await made.until(lambda: alone in gangs and KEY in gangs)
    await made.until(lambda: gangs[KEY].started == EPOCH + 1)
    assert gangs[alone].started == EPOCH + 5
    await made.client.delete(kinds.PODS, "a", namespace="default", grace=0)
    await made.until(lambda: gangs[KEY].started == EPOCH + 2)
    await made.client.delete(kinds.PODS, "b", namespace="default", grace=0)
    await made.until(lambda: gangs[KEY].started is None)
    await made.client.delete(kinds.PODS, "alone", namespace="default", grace=0)
    await made.until(lambda: alone not in gangs)


EPOCH = 1767225600  # 2026-01-01


async def _start(made: Followed, name: str, second: int) -> None:
    status = {"status": {"phase": "Running", "startTime": f"2026-01-01T00:00:{second:02}Z"}}
    await made.client.patch(kinds.PODS, name, status, namespace="default", subresource="status")


def _template(name: str) -> Json:
    return {
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        },
        "replicas": 0,
    }


def _deployment(name: str, **options: Any) -> Json:
    return groups.owner("apps/v1", "Deployment", name, spec=_template(name), **options)


def _replica_set(name: str, above: Json, **options: Any) -> Json:
    return groups.owner("apps/v1", "ReplicaSet", name, spec=_template(name), above=above, **options)


# Fed directly


def test_q11_a_status_that_an_owner_writes_concerns_no_pod() -> None:
    view = View()
    job = groups.job("train", queue="team", uid="uid-train")
    view.group_objects.owner_changed(None, job)
    pod = pods.typed(groups.owned(pods.our_pod("a", uid="uid-a"), job))
    view.pods.changed(None, pod)
    later = {**job, "metadata": {**job["metadata"], "resourceVersion": "2"}}
    assert view.groups.owners.changed(job, later) == []
    relabelled = {**later, "metadata": {**later["metadata"], "labels": {}}}
    assert view.groups.owners.changed(later, relabelled) == ["uid-a"]


def test_q11_a_pod_is_held_back_until_the_pod_that_owns_it_is_known() -> None:
    view = View()
    view.group_objects.follow_owners(lambda _: None)
    driver = pods.our_pod("driver", uid="uid-driver", labels={names.QUEUE_LABEL: "team"})
    executor = pods.typed(groups.owned(pods.our_pod("executor", uid="uid-executor"), driver))
    view.pods.changed(None, executor)
    waiting = view.waiting.get(PodUID("uid-executor"))
    assert waiting is not None
    assert waiting.held
    view.pods.changed(None, pods.typed(driver))
    waiting = view.waiting.get(PodUID("uid-executor"))
    assert waiting is not None
    assert waiting.reading.request is not None
    assert (waiting.held, waiting.reading.request.queue) == (False, "team")


def test_q07_pods_of_other_schedulers_wait_for_no_pod_group() -> None:
    view = View()
    view.group_objects.pod_groups_known()
    view.pods.changed(None, pods.typed(pods.pod("theirs", uid="uid-theirs", annotations=IN_GANG)))
    waiting = view.waiting.get(PodUID("uid-theirs"))
    assert waiting is not None
    assert waiting.reading.problem is None
