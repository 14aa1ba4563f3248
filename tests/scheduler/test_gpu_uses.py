"""One state for every use of a GPU: slices, whole GPUs and plain pods side by side, under both of our names."""

from __future__ import annotations

import pytest

from apportion.apis import kinds, names
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling, until

WHOLE = {names.NVIDIA_GPU: "1"}


@pytest.mark.parametrize("scheduler", names.OUR_SCHEDULERS)
async def test_x04_d03_slices_and_whole_gpus_share_a_node_but_never_a_gpu(
    each_cluster: ApiCluster, scheduler: str
) -> None:
    cluster = each_cluster
    await cluster.node("mixed", gpus=3, mig=1, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(cluster):
        for number in range(2):
            await cluster.pod(f"whole-{number}", limits=WHOLE, scheduler=scheduler)
        await cluster.pod("sliced", slices={"3g.20gb": 2}, scheduler=scheduler)
        await cluster.bound("whole-0", "whole-1", "sliced")
        assert {claim.spec.gpu_uuid for claim in await cluster.claims()} == {cluster.gpus["mixed"][0]}
        await cluster.pod("third", limits=WHOLE, scheduler=scheduler)
        assert "too few free GPUs" in await cluster.waits("third")
        await cluster.pod("more", slices={"1g.5gb": 1}, scheduler=scheduler)
        assert "1g.5gb" in await cluster.waits("more")
        await cluster.delete("whole-0")
        await cluster.bound("third")


async def test_x04_a_gpu_that_is_lost_is_given_to_nobody(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources={names.NVIDIA_GPU: "1"})
    report = await cluster.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    gpus = [{**gpu, "healthy": False} for gpu in report["status"]["gpus"]]
    await _report(cluster, "n1", gpus)
    async with scheduling(cluster):
        await cluster.pod("a", limits=WHOLE)
        await cluster.waits("a")
        await _report(cluster, "n1", [{**gpu, "healthy": True} for gpu in gpus])
        await cluster.bound("a")


async def test_s09_places_of_slices_that_others_made_are_avoided(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    report = await cluster.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    (gpu,) = report["status"]["gpus"]
    await _report(cluster, "n1", [{**gpu, "foreign": [{"start": 0, "size": 4}]}])
    async with scheduling(cluster):
        for name in "ab":
            await cluster.pod(name, slices={"3g.20gb": 1})

        async def one_is_bound() -> str | None:
            bound = [name for name in "ab" if (await cluster.get(name)).spec.node_name]
            return bound[0] if len(bound) == 1 else None

        first = await until(one_is_bound)
        (claim,) = await cluster.claims()
        assert claim.spec.mig_placement.start == 4
        second = "b" if first == "a" else "a"
        assert "no free placement" in await cluster.waits(second)
        await _report(cluster, "n1", [{**gpu, "foreign": []}])
        await cluster.bound(second)
    await cluster.no_overlap()


@pytest.mark.parametrize(("policy", "own", "node"), [("spread", "pack", "full"), ("pack", "spread", "empty")])
async def test_s05_the_cluster_has_a_policy_and_a_pod_may_have_another(
    cluster: ApiCluster, policy: str, own: str, node: str
) -> None:
    await cluster.node("empty")
    await cluster.node("full")
    other = {"full": "empty", "empty": "full"}[node]
    async with scheduling(cluster, policy=policy):
        await cluster.pod("first", slices={"1g.5gb": 4}, selector={names.HOSTNAME_LABEL: "full"})
        await cluster.bound("first")
        await cluster.pod("own", slices={"1g.5gb": 1}, annotations={names.POLICY: own})
        assert await cluster.bound("own") == {"own": node}
        await cluster.delete("own")
        await cluster.pod("common", slices={"1g.5gb": 1})
        assert await cluster.bound("common") == {"common": other}


async def _report(cluster: ApiCluster, node: str, gpus: list[dict[str, object]]) -> None:
    await cluster.client.patch(
        kinds.NODE_ACCELERATORS, node, {"status": {"gpus": gpus}}, namespace=NAMESPACE, subresource="status"
    )
