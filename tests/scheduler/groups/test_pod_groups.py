"""PodGroups that the scheduler makes for owners: they follow their owner, and PodGroups of users stay as they are."""

from __future__ import annotations

import pytest

from apportion.apis import kinds, names
from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response
from apportion.scheduler.groups import pod_groups
from tests.builders import groups
from tests.scheduler.cluster import scheduling, until
from tests.scheduler.cut_connections import Onwards, Proxy
from tests.scheduler.groups.gangs import LEADER_WORKER_SETS, TRAININGS, Gangs

TRAINING_ROW = {"group": "example.com", "kind": "Training", "minimum": {"paths": ["spec.pods"]}}
BAD_ROW = {"group": "example.com", "kind": "Other", "minimun": {"paths": ["spec.pods"]}}


async def two_gpus(gangs: Gangs) -> None:
    await gangs.cluster.node("n1", gpus=2, mig=0, resources={names.NVIDIA_GPU: "2"})


async def test_q11_a_gang_of_an_owner_gets_a_pod_group_that_its_pods_name(gangs: Gangs) -> None:
    await two_gpus(gangs)
    await gangs.client.create(kinds.QUEUES, groups.queue("team", gpus=4))
    async with scheduling(gangs.cluster):
        owner = await gangs.gang("train", 2, queue="team")
        await gangs.cluster.bound("train-0", "train-1")
        made = await gangs.pod_group(2, queue="team")
    assert made["metadata"]["labels"] == {names.MANAGED_BY_LABEL: names.MANAGED_BY_SCHEDULER}
    (reference,) = made["metadata"]["ownerReferences"]
    assert reference == {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "name": "train",
        "uid": owner["metadata"]["uid"],
    }
    for pod in ("train-0", "train-1"):
        assert await gangs.named_group(pod) == made["metadata"]["name"]


async def test_q11_a_pod_group_follows_its_owner(gangs: Gangs) -> None:
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        owner = await gangs.gang("train", 2)
        await gangs.cluster.bound("train-0", "train-1")
        made = await gangs.pod_group(2, queue="default-queue")
        await gangs.resize("train", 3)
        await gangs.pod_group(3)
        label = {"metadata": {"labels": {names.QUEUE_LABEL: "other"}}}
        await gangs.client.patch(LEADER_WORKER_SETS, "train", label, namespace="default")
        await gangs.pod_group(3, queue="other")
        await gangs.client.delete(kinds.POD_GROUPS, made["metadata"]["name"], namespace="default")
        again = await gangs.pod_group(3, queue="other")
    assert again["metadata"]["name"] == made["metadata"]["name"]
    assert again["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]


async def test_q11_what_a_user_writes_into_such_a_pod_group_does_not_last(gangs: Gangs) -> None:
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        await gangs.gang("train", 2)
        made = await gangs.pod_group(2)
        patch = {"spec": {"minMember": 7}}
        await gangs.client.patch(kinds.POD_GROUPS, made["metadata"]["name"], patch, namespace="default")
        await gangs.pod_group(2)


async def test_q11_a_pod_group_of_a_user_is_left_alone(gangs: Gangs) -> None:
    await two_gpus(gangs)
    await gangs.client.create(kinds.POD_GROUPS, groups.pod_group("mine", 2))
    async with scheduling(gangs.cluster):
        owner = await gangs.owner("train", 5)
        for number in range(2):
            await gangs.pod(f"train-{number}", owner, annotations={names.POD_GROUP: "mine"})
        await gangs.cluster.bound("train-0", "train-1")
        await gangs.pass_time()
        (found,) = await gangs.pod_groups()
    assert found["metadata"]["name"] == "mine"
    assert found["spec"] == {"minMember": 2}
    assert "labels" not in found["metadata"]


async def test_q11_a_pod_group_of_a_user_is_left_alone_even_under_the_name_of_ours(gangs: Gangs) -> None:
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        owner = await gangs.owner("train", 2)
        theirs = groups.pod_group(f"pg-train-{owner['metadata']['uid']}-0", 1)
        await gangs.client.create(kinds.POD_GROUPS, theirs)
        for number in range(2):
            await gangs.pod(f"train-{number}", owner)
        await gangs.cluster.bound("train-0", "train-1")
        await gangs.pass_time()
        (found,) = await gangs.pod_groups()
        assert await gangs.named_group("train-0") == "", "it would be in the group of the user then"
    assert found["spec"] == {"minMember": 1}
    assert "labels" not in found["metadata"]


async def test_q11_a_pod_group_that_has_lost_its_pods_is_removed(gangs: Gangs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_groups, "EMPTY_SECONDS", 1.0)
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        await gangs.gang("train", 2)
        await gangs.cluster.bound("train-0", "train-1")
        await gangs.pod_group(2)
        await gangs.cluster.delete("train-0")
        await gangs.pass_time(2)
        await gangs.pod_group(2)
        await gangs.cluster.delete("train-1")

        async def removed() -> bool:
            return not await gangs.pod_groups()

        await until(removed)


async def test_q11_single_pods_get_pod_groups_only_if_the_config_says_so(gangs: Gangs) -> None:
    await gangs.cluster.node("n1", gpus=3, mig=0, resources={names.NVIDIA_GPU: "3"})
    async with scheduling(gangs.cluster):
        await gangs.pod("before")
        await gangs.cluster.bound("before")
        await gangs.pass_time()
        assert await gangs.pod_groups() == []
        await gangs.config(everyPod=True)

        async def known() -> bool:
            return len(await gangs.pod_groups()) == 1

        await until(known)
        uid = await gangs.pod("after")
        await gangs.cluster.bound("after")

        async def named() -> bool:
            return await gangs.named_group("after") == f"pg-after-{uid}"

        await until(named)

        async def both() -> bool:
            return len(await gangs.pod_groups()) == 2

        await until(both)
        found = next(group for group in await gangs.pod_groups() if "after" in group["metadata"]["name"])
        assert found["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": "after", "uid": uid}
        ]
        await gangs.config(everyPod=False)
        await gangs.pass_time()
        await gangs.pod("last")
        await gangs.cluster.bound("last")
        assert await gangs.named_group("last") == ""


async def test_q11_a_further_kind_is_a_row_in_the_config(gangs: Gangs) -> None:
    await two_gpus(gangs)
    async with scheduling(gangs.cluster):
        owner = await gangs.owner("fit", 2, kind=TRAININGS)
        await gangs.config(ownerKinds=[TRAINING_ROW, BAD_ROW])
        await gangs.event("Config", names.KAI_CONFIG_OBJECT, "InvalidOwnerKind")  # it is observed
        await gangs.pod("fit-0", owner)
        assert "minimum" in await gangs.cluster.waits("fit-0")
        await gangs.pod("fit-1", owner)
        await gangs.cluster.bound("fit-0", "fit-1")
        made = await gangs.pod_group(2)
        assert await gangs.named_group("fit-0") == made["metadata"]["name"]


async def test_q11_a_row_that_cannot_be_used_is_told_and_the_others_count(gangs: Gangs) -> None:
    await two_gpus(gangs)
    await gangs.config(ownerKinds=[BAD_ROW, TRAINING_ROW])
    async with scheduling(gangs.cluster):
        owner = await gangs.owner("fit", 2, kind=TRAININGS)
        await gangs.pod("fit-0", owner)
        assert "minimum" in await gangs.cluster.waits("fit-0")
        said = await gangs.event("Config", names.KAI_CONFIG_OBJECT, "InvalidOwnerKind", "ownerKinds[0]", "minimun")
        assert said.endswith("this row is not used")


async def test_q11_a_row_that_changes_counts_for_pods_that_wait(gangs: Gangs) -> None:
    """Other fields of the owner are of interest then, so that owners of this kind are read anew."""
    await two_gpus(gangs)
    await gangs.config(ownerKinds=[TRAINING_ROW])
    async with scheduling(gangs.cluster):
        owner = await gangs.owner("fit", 3, kind=TRAININGS)
        await gangs.client.patch(TRAININGS, "fit", {"spec": {"least": 2}}, namespace="default")
        for number in range(2):
            await gangs.pod(f"fit-{number}", owner)
        await gangs.cluster.waits("fit-0")
        await gangs.pod_group(3)
        await gangs.config(ownerKinds=[TRAINING_ROW | {"minimum": {"paths": ["spec.least"]}}])
        await gangs.cluster.bound("fit-0", "fit-1")
        made = await gangs.pod_group(2)
        assert await gangs.named_group("fit-0") == made["metadata"]["name"]


@pytest.mark.parametrize("after", [False, True])
async def test_q11_a_leader_that_dies_while_it_writes_leaves_the_rest_to_the_next(gangs: Gangs, *, after: bool) -> None:
    await two_gpus(gangs)
    proxy = _Cut(after=after)
    async with scheduling(gangs.cluster, gangs.cluster.wire(proxy)):
        await gangs.gang("train", 2)
        await proxy.dead.wait()
    await gangs.cluster.end_lease()
    async with scheduling(gangs.cluster):
        made = await gangs.pod_group(2)
        await gangs.cluster.bound("train-0", "train-1")
        assert await gangs.named_group("train-1") == made["metadata"]["name"]


async def test_q11_pods_wait_for_no_pod_group(gangs: Gangs) -> None:
    """Their group is known from the owner, also while its PodGroup cannot be written."""
    await two_gpus(gangs)

    async def refuses(request: HttpRequest, onwards: Onwards) -> Response:
        if _creates_a_pod_group(request):
            raise errors.Unreachable("cut")
        return await onwards()

    async with scheduling(gangs.cluster, gangs.cluster.wire(refuses)):
        await gangs.gang("train", 2)
        await gangs.cluster.bound("train-0", "train-1")


class _Cut(Proxy):
    """Dies when it writes a PodGroup."""

    async def __call__(self, request: HttpRequest, onwards: Onwards) -> Response:
        if _creates_a_pod_group(request):
            self.cut_at = len(self.calls)
        return await super().__call__(request, onwards)


def _creates_a_pod_group(request: HttpRequest) -> bool:
    return request.method == "POST" and request.path.endswith("/podgroups")
