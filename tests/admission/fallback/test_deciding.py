"""What is free decides: pods created through an API server that calls the webhook."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.transport import HttpRequest, Response, Transport
from tests.admission.fallback.cluster import SETTINGS, FallbackCluster, asked, fallback, fallback_cluster, with_patience
from tests.builders.pods import fallback_pod
from tests.environments.waiting import eventually

QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota")
NO_PODS = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
TWO, ONE = {"2g.20gb": 1}, {"1g.10gb": 1}


async def burst(it: FallbackCluster, count: int, owner: str = "rs-1") -> Counter[str]:
    """That many pods of one controller at once; a refusal that says retry is retried, as controllers do."""
    made = await asyncio.gather(*(persistent(it, owner) for _ in range(count)))
    return made_of(made)


async def persistent(it: FallbackCluster, owner: str) -> dict[str, object]:
    for _ in range(50):
        try:
            return await it.create(fallback_pod(owner=owner))
        except errors.TooManyRequests:
            await asyncio.sleep(0.1)
    raise AssertionError("never created")


def made_of(pods: object) -> Counter[str]:
    counted: Counter[str] = Counter()
    for each in pods:  # type: ignore[attr-defined]
        devices = asked(each)
        assert fallback(each) == (None if devices == TWO else "2g.20gb->1g.10gb")
        counted.update(devices)
    return counted


@pytest.mark.parametrize("replicas", [1, 2])
async def test_f04_of_twenty_pods_at_once_exactly_twelve_keep_what_they_asked_for(replicas: int) -> None:
    async with fallback_cluster(replicas=replicas) as it:
        assert await burst(it, 20) == {"2g.20gb": 12, "1g.10gb": 8}


async def test_f04_freed_devices_are_used_again() -> None:
    async with fallback_cluster() as it:
        kept = [await it.create(fallback_pod(owner="a")) for _ in range(12)]
        assert asked(await it.create(fallback_pod(owner="a"))) == ONE
        for each in kept[:4]:
            await it.remove(each)
        assert [asked(await it.create(fallback_pod(owner="a"))) for _ in range(5)] == [TWO] * 4 + [ONE]


async def test_f04_a_pod_that_fits_is_untouched() -> None:
    async with fallback_cluster() as it:
        made = await it.create(fallback_pod(name="alone"))
        assert asked(made) == TWO
        assert not made["metadata"].get("annotations")


async def test_f04_only_nodes_that_the_pod_could_run_on_count() -> None:
    async with fallback_cluster() as it:
        here = await it.create(fallback_pod(nodeSelector={"node-pool": "small"}))
        assert (asked(here), fallback(here)) == (ONE, "2g.20gb->1g.10gb")
        there = await it.create(fallback_pod(nodeSelector={"node-pool": "medium"}))
        assert asked(there) == TWO
        await it.client.patch(kinds.NODES, "medium", {"spec": {"unschedulable": True}})
        await eventually(lambda: falls(it))


async def falls(it: FallbackCluster) -> bool:
    return asked(await it.create(fallback_pod(), dry_run=True)) == ONE


async def test_f04_bound_pods_count_on_their_node_and_terminating_ones_until_their_containers_end() -> None:
    async with fallback_cluster() as it:
        await it.set_capacity("medium", {"nvidia.com/mig-2g.20gb": 1, "nvidia.com/mig-1g.10gb": 1})
        holder = await eventually(lambda: only_one(it))
        await it.bind(holder, "medium")
        running = {"name": "main", "state": {"running": {}}, "image": "i", "imageID": "i", "ready": True}
        await set_status(it, holder, {"phase": "Running", "containerStatuses": [running | {"restartCount": 0}]})
        await it.client.delete(kinds.PODS, holder["metadata"]["name"], namespace="default")
        assert asked(await it.create(fallback_pod())) == ONE
        await set_status(it, holder, {"phase": "Succeeded"})
        assert asked(await it.create(fallback_pod())) == TWO


async def only_one(it: FallbackCluster) -> object:
    """The webhook has seen the new capacity: a second pod would fall."""
    made = await it.create(fallback_pod())
    if asked(await it.create(fallback_pod(), dry_run=True)) == ONE:
        return made
    await it.remove(made)
    return None


async def set_status(it: FallbackCluster, of: dict[str, dict[str, str]], status: dict[str, object]) -> None:
    name = of["metadata"]["name"]
    await it.client.patch(kinds.PODS, name, {"status": status}, namespace="default", subresource="status")


async def test_f04_gated_pods_hold_their_devices_and_pods_that_fit_nowhere_hold_nothing() -> None:
    async with fallback_cluster() as it:
        for _ in range(11):
            await it.create(fallback_pod(schedulingGates=[{"name": "example.com/later"}]))
        lost = await it.create(fallback_pod(labels={"gpu-webhook": "disabled"}, nodeSelector={"node-pool": "nowhere"}))
        assert asked(lost) == TWO
        assert asked(await it.create(fallback_pod())) == TWO
        assert asked(await it.create(fallback_pod())) == ONE


async def test_f04_promises_alone_justify_no_fallback_the_answer_waits_and_then_says_retry() -> None:
    async with fallback_cluster(settings=with_patience(deadline=0.5, lifetime=60)) as it:
        await it.set_capacity("medium", {"nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-1g.10gb": 4})
        await it.client.create(QUOTAS, NO_PODS, namespace="default")
        for _ in range(2):  # promised, then refused by the quota
            with pytest.raises(errors.Forbidden):
                await it.create(fallback_pod(owner="refused"))
        assert len((await it.stored_promises())["promises"]) == 2
        with pytest.raises(errors.TooManyRequests, match="retry in a moment"):
            await it.create(fallback_pod(owner="refused"))


async def test_f04_a_promise_whose_pod_never_comes_ends_after_its_lifetime() -> None:
    async with fallback_cluster(settings=with_patience(deadline=5, lifetime=1.0)) as it:
        await it.node("tiny", {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 1})
        big = {"nvidia.com/mig-3g.40gb": 1}
        await it.client.create(QUOTAS, NO_PODS, namespace="default")
        with pytest.raises(errors.Forbidden):
            await it.create(fallback_pod(limits=big))
        await it.client.delete(QUOTAS, "none", namespace="default")
        made = await it.create(fallback_pod(limits=big))  # waits for the promise to end
        assert asked(made) == {"3g.40gb": 1}


async def test_d05_f04_dry_runs_promise_nothing() -> None:
    async with fallback_cluster() as it:
        for _ in range(20):
            assert asked(await it.create(fallback_pod(), dry_run=True)) == TWO
        assert "promises" not in await it.stored_promises()
        assert await burst(it, 20) == {"2g.20gb": 12, "1g.10gb": 8}
        assert asked(await it.create(fallback_pod(), dry_run=True)) == ONE


async def test_f04_the_forty_fifth_pod_keeps_the_last_tier_and_waits() -> None:
    async with fallback_cluster() as it:
        counted = await burst(it, 44)
        assert counted == {"2g.20gb": 12, "1g.10gb": 32}
        last = await it.create(fallback_pod())
        assert (asked(last), fallback(last)) == (ONE, "2g.20gb->1g.10gb")


async def test_f07_a_pod_may_prefer_to_be_refused_at_the_end() -> None:
    async with fallback_cluster() as it:
        await burst(it, 44)
        with pytest.raises(errors.BadRequest, match=r"no tier is available \(2g.20gb->1g.10gb\)"):
            await it.create(fallback_pod(annotations={names.FALLBACK_AT_END: "reject"}))


async def test_f07_several_steps_are_written_in_full() -> None:
    async with fallback_cluster() as it:
        made = await it.create(fallback_pod(limits={"nvidia.com/mig-7g.70gb": 1}))
        assert (asked(made), fallback(made)) == (TWO, "7g.70gb->3g.40gb->2g.20gb")


async def test_f07_tiers_of_pod_go_before_those_of_its_namespace() -> None:
    async with fallback_cluster() as it:
        await it.namespace("team", annotations={names.FALLBACK_TIERS: "7g.70gb > 1g.10gb"})
        big = {"nvidia.com/mig-7g.70gb": 1}
        await eventually(lambda: tier_in(it, big, "7g.70gb->1g.10gb"))
        made = await it.create(
            fallback_pod(limits=big, annotations={names.FALLBACK_TIERS: "7g.70gb,2g.20gb"}), namespace="team"
        )
        assert fallback(made) == "7g.70gb->2g.20gb"
        with pytest.raises(errors.BadRequest, match="list the largest first"):
            await it.create(fallback_pod(annotations={names.FALLBACK_TIERS: "1g.10gb > 2g.20gb"}))


async def tier_in(it: FallbackCluster, devices: dict[str, int], path: str) -> bool:
    return fallback(await it.create(fallback_pod(limits=devices), namespace="team", dry_run=True)) == path


async def test_f07_memory_can_be_kept_by_asking_for_more_devices() -> None:
    async with fallback_cluster() as it:
        keep = {names.FALLBACK_KEEP_MEMORY: "true", names.FALLBACK_NODES: "node-pool=small"}
        made = await it.create(fallback_pod(limits={"nvidia.com/mig-2g.20gb": 3}, annotations=keep))
        assert (asked(made), fallback(made)) == ({"1g.10gb": 6}, "2g.20gb->1g.10gb")


async def test_f07_hints_by_node_label_and_gpu_affinity_narrow_the_nodes() -> None:
    async with fallback_cluster() as it:
        await it.node("other", {"nvidia.com/mig-3g.40gb": 2}, {names.GPU_PRODUCT_LABEL: "NVIDIA-A100"})
        big = {"nvidia.com/mig-3g.40gb": 1}
        await eventually(lambda: kept(it, big))
        made = await it.create(fallback_pod(limits=big, annotations={names.GPU_AFFINITY: "NVIDIA-H200,NVIDIA-H100"}))
        assert fallback(made) == "3g.40gb->2g.20gb"
        hinted = await it.create(fallback_pod(annotations={names.FALLBACK_NODES: "node-pool=small"}))
        assert fallback(hinted) == "2g.20gb->1g.10gb"


async def kept(it: FallbackCluster, devices: dict[str, int]) -> bool:
    return fallback(await it.create(fallback_pod(limits=devices), dry_run=True)) is None


async def test_f07_all_containers_step_together() -> None:
    async with fallback_cluster() as it:
        body = fallback_pod(nodeSelector={"node-pool": "small"})
        first = body["spec"]["containers"][0]
        body["spec"]["containers"].append({**first, "name": "more"})
        body["spec"]["initContainers"] = [{**first, "name": "before"}]
        made = await it.create(body)
        assert (asked(made), fallback(made)) == ({"1g.10gb": 2}, "2g.20gb->1g.10gb")
        assert made["spec"]["initContainers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}


@pytest.mark.parametrize("where", ["pod", "namespace", "kueue", "job"])
async def test_f05_those_who_opted_out_and_jobs_of_kueue_stay_as_they_are(where: str) -> None:
    async with fallback_cluster() as it:
        await it.set_capacity("medium", {"nvidia.com/mig-1g.10gb": 4})
        await eventually(lambda: falls(it))
        await it.namespace("out", labels={"gpu-webhook": "disabled"})
        body = fallback_pod()
        if where == "pod":
            body = fallback_pod(labels={"gpu-webhook": "disabled"})
        if where == "kueue":
            body = fallback_pod(labels={"kueue.x-k8s.io/queue-name": "team"})
        if where == "job":
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}
            job = {"metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
            made_job = await it.client.create(kinds.JOBS, job | {"spec": {"template": template}}, namespace="default")
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": made_job["metadata"]["uid"]}
            body["metadata"]["ownerReferences"] = [reference | {"controller": True}]
        made = await it.create(body, namespace="out" if where == "namespace" else "default")
        assert (asked(made), fallback(made)) == (TWO, None)


async def test_d05_applying_the_same_manifest_again_changes_nothing() -> None:
    async with fallback_cluster() as it:
        body = fallback_pod(name="again", nodeSelector={"node-pool": "small"}) | {"apiVersion": "v1", "kind": "Pod"}
        made = await it.client.apply(kinds.PODS, body, field_manager="me", namespace="default")
        assert asked(made) == ONE
        again = await it.client.apply(kinds.PODS, body, field_manager="me", namespace="default")
        assert again["spec"] == made["spec"]
        assert fallback(again) == "2g.20gb->1g.10gb"
        merged = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}}}]}}
        patched = await it.client.patch(kinds.PODS, "again", merged, namespace="default", how=PatchType.strategic)
        assert patched["spec"] == made["spec"]


async def test_d05_applying_again_works_also_after_the_tiers_changed() -> None:
    async with fallback_cluster() as it:
        body = fallback_pod(name="again", nodeSelector={"node-pool": "small"}) | {"apiVersion": "v1", "kind": "Pod"}
        made = await it.client.apply(kinds.PODS, body, field_manager="me", namespace="default")
        assert asked(made) == ONE
        await it.stop("replica-0")
        await it.start("replica-1", replace(SETTINGS, tiers=("7g.70gb", "2g.20gb")))
        wrong = {"metadata": {"annotations": {names.FALLBACK_TIERS: "1g.10gb > 2g.20gb"}}}
        await it.client.patch(kinds.NAMESPACES, "default", wrong)
        await eventually(lambda: refused(it))
        again = await it.client.apply(kinds.PODS, body, field_manager="me", namespace="default")
        assert (again["spec"], fallback(again)) == (made["spec"], "2g.20gb->1g.10gb")


async def refused(it: FallbackCluster) -> bool:
    try:
        await it.create(fallback_pod(), dry_run=True)
    except errors.BadRequest:
        return True
    return False


class NoJobs:
    """Carries everything but questions about Jobs, which nobody answers."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        if "/jobs/" in request.path:
            raise errors.Unreachable("connection reset")
        return await self._inner.send(request, stream=stream, timeout=timeout)

    async def close(self) -> None:
        await self._inner.close()


async def test_f05_a_job_that_cannot_be_read_now_is_a_reason_to_come_again_for_those_whom_it_concerns() -> None:
    async with fallback_cluster(replicas=0) as it:
        await it.start("replica-0", client=Client(NoJobs(it.account()._transport)))
        of_job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        body = fallback_pod()
        body["metadata"]["ownerReferences"] = [of_job]
        with pytest.raises(errors.TooManyRequests, match=r"whether Kueue admitted its Job train \(connection reset\)"):
            await it.create(body)
        made_on_demand = fallback_pod(limits={"mig.das.com/3g.20gb": 1}, schedulerName="das-scheduler")
        made_on_demand["metadata"]["ownerReferences"] = [of_job]
        assert fallback(await it.create(made_on_demand)) is None
