"""PodGroups that the scheduler makes: their owners count as long as they are known, and pods that name them are in the
same group as before. And since when a group runs without its minimum."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.apis.owner_kinds import grouping
from apportion.core.groups import Subgroup
from apportion.view.groups import owned_groups
from tests.builders import groups
from tests.scheduler.cluster import ApiCluster
from tests.view.followed import Followed, followed

Json = dict[str, Any]
RAY = Kind("ray.io", "v1", "rayclusters", "RayCluster")
MADE = {names.MANAGED_BY_LABEL: names.MANAGED_BY_SCHEDULER}
HEAD, WORKER = {"ray.io/group": "headgroup"}, {"ray.io/group": "workers"}


@pytest.fixture
async def made(each_cluster: ApiCluster) -> AsyncIterator[Followed]:
    async with followed(each_cluster) as found:
        await found.install(RAY)
        yield found


async def ray_cluster(made: Followed, name: str = "ray", **options: Any) -> Json:
    workers = {"groupName": "workers", "minReplicas": 2}
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [workers]}
    return await made.create(RAY, groups.owner(RAY.api_version, RAY.kind, name, spec=spec, **options))


def group_of(owner: Json) -> str:
    return f"pg-{owner['metadata']['name']}-{owner['metadata']['uid']}"


async def test_q11_a_pod_that_names_the_group_of_its_owner_needs_no_pod_group(made: Followed) -> None:
    owner = await ray_cluster(made, queue="team")
    name = group_of(owner)
    await made.pod("head", owner=owner, labels=HEAD)
    before = await made.read("head", group=name, subgroup="headgroup", queue="team")
    await made.pod("named", owner=owner, labels=HEAD, annotations={names.POD_GROUP: name})
    request = await made.read("named", group=name, subgroup="headgroup", queue="team")
    assert request.group_key == before.group_key
    gang = made.view.fleet.gang_of(request)
    assert (gang.minimum, gang.subgroups) == (3, (Subgroup("headgroup", 1), Subgroup("workers", 2)))


async def test_q11_the_owner_counts_before_the_pod_group_that_was_made_for_it(made: Followed) -> None:
    owner = await ray_cluster(made, queue="team")
    name = group_of(owner)
    old = groups.pod_group(name, 9, queue="before")
    old["metadata"]["labels"] = MADE
    await made.create(kinds.POD_GROUPS, old)
    await made.pod("a", owner=owner, labels=WORKER, annotations={names.POD_GROUP: name})
    request = await made.read("a", queue="team", subgroup="workers")
    assert made.view.fleet.gang_of(request).minimum == 3


async def test_q11_without_its_owner_the_pod_group_counts(made: Followed) -> None:
    owner = await ray_cluster(made)
    name = group_of(owner)
    kept = groups.pod_group(name, 2, queue="team")
    kept["metadata"]["labels"] = MADE
    await made.create(kinds.POD_GROUPS, kept)
    orphan = {names.POD_GROUP: name}
    await made.pod("a", annotations=orphan)
    request = await made.read("a", queue="team", group=name)
    assert made.view.fleet.gang_of(request).minimum == 2


async def test_q07_a_pod_group_of_a_user_counts_even_under_that_name(made: Followed) -> None:
    owner = await ray_cluster(made)
    name = group_of(owner)
    await made.create(kinds.POD_GROUPS, groups.pod_group(name, 5))
    await made.pod("a", owner=owner, annotations={names.POD_GROUP: name})
    request = await made.read("a", group=name)
    await made.until(lambda: made.view.fleet.gang_of(request).minimum == 5)


async def test_q11_a_single_pod_that_names_its_own_pod_group_stays_single(made: Followed) -> None:
    uid = await made.pod("alone", node="n1", limits={"cpu": "1"})
    fleet = made.view.fleet
    await made.until(lambda: uid in fleet.pod_nodes)
    patch = {"metadata": {"annotations": {names.POD_GROUP: grouping.single_group_name("alone", uid)}}}
    await made.client.patch(kinds.PODS, "alone", patch, namespace="default")
    await made.until(lambda: names.POD_GROUP in made.view.pods.get(uid).metadata.annotations)  # type: ignore[union-attr]
    assert fleet.nodes["n1"].pods[uid].group is None
    found = owned_groups.owned_group(made.view.groups, made.view.pods, uid)
    assert found is not None
    assert (found.owner.kind, found.owner.uid, found.minimum, found.gang) == ("Pod", uid, 1, False)


async def test_q11_what_a_pod_group_for_an_owner_says(made: Followed) -> None:
    owner = await ray_cluster(made, queue="team", labels={names.PREEMPTIBILITY_LABEL: "non-preemptible"})
    await made.pod("a", owner=owner, labels=WORKER)
    request = await made.read("a", queue="team")
    found = owned_groups.owned_group(made.view.groups, made.view.pods, request.group_key)
    assert found is not None
    assert (found.namespace, found.name) == ("default", group_of(owner))
    assert (found.owner.api_version, found.owner.kind, found.owner.name) == ("ray.io/v1", "RayCluster", "ray")
    assert (found.queue, found.preemptibility, found.minimum) == ("team", "non-preemptible", 3)
    assert found.gang


async def test_q11_a_label_that_means_nothing_is_not_copied(made: Followed) -> None:
    owner = await ray_cluster(made)
    await made.pod("a", owner=owner, labels={names.PREEMPTIBILITY_LABEL: "perhaps"})
    request = await made.read("a")
    found = owned_groups.owned_group(made.view.groups, made.view.pods, request.group_key)
    assert found is not None
    assert found.preemptibility == ""


# Below the minimum


async def marked(made: Followed, name: str, since: str, status: str = "True") -> None:
    condition = {"type": "BelowMinimum", "status": status, "lastTransitionTime": since}
    patch = {"status": {"conditions": [condition]}}
    await made.client.patch(kinds.POD_GROUPS, name, patch, namespace="default", subresource="status")


async def test_q09_the_status_of_the_pod_group_says_since_when_a_group_is_below_its_minimum(made: Followed) -> None:
    await made.create(kinds.POD_GROUPS, groups.pod_group("gang", 2))
    await made.pod("a", annotations={names.POD_GROUP: "gang"}, node="n1")
    gangs = made.view.fleet.gangs
    await made.until(lambda: "default/gang" in gangs)
    assert gangs["default/gang"].below_since is None
    position = made.view.changes.position
    await marked(made, "gang", "1970-01-01T00:01:40Z")
    await made.until(lambda: gangs["default/gang"].below_since == 100)
    assert made.view.changes.position == position, "nobody has to be decided about anew"
    running = {"status": {"phase": "Running", "startTime": "1970-01-01T00:02:00Z"}}
    await made.client.patch(kinds.PODS, "a", running, namespace="default", subresource="status")
    await made.until(lambda: gangs["default/gang"].below_since == 120)
    await marked(made, "gang", "1970-01-01T00:03:00Z", "False")
    await made.until(lambda: gangs["default/gang"].below_since is None)


async def test_q09_the_same_for_a_group_of_an_owner(made: Followed) -> None:
    owner = await ray_cluster(made)
    name = group_of(owner)
    kept = groups.pod_group(name, 3)
    kept["metadata"]["labels"] = MADE
    await made.create(kinds.POD_GROUPS, kept)
    await made.pod("a", owner=owner, labels=WORKER, node="n1")
    gangs = made.view.fleet.gangs
    await made.until(lambda: f"default/{name}" in gangs)
    await marked(made, name, "1970-01-01T00:01:40Z")
    await made.until(lambda: gangs[f"default/{name}"].below_since == 100)
    assert gangs[f"default/{name}"].minimum == 3


async def test_q09_a_date_that_cannot_be_read_is_none(made: Followed) -> None:
    await made.create(kinds.POD_GROUPS, groups.pod_group("gang", 2))
    await marked(made, "gang", "yesterday")
    await made.pod("a", annotations={names.POD_GROUP: "gang"}, node="n1")
    await made.until(lambda: "default/gang" in made.view.fleet.gangs)
    assert made.view.fleet.gangs["default/gang"].below_since is None
