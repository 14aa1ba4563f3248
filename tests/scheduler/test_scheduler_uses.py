"""One state for every use of a GPU: slices, whole GPUs and plain pods side by side, under both of our names."""

from __future__ import annotations

import pytest

from apportion.apis import kinds, names
from tests.scheduler.ground import NAMESPACE, Ground, scheduling, until

WHOLE = {names.NVIDIA_GPU: "1"}


@pytest.mark.parametrize("scheduler", names.OUR_SCHEDULERS)
async def test_x04_d03_slices_and_whole_gpus_share_a_node_but_never_a_gpu(any_ground: Ground, scheduler: str) -> None:
    ground = any_ground
    await ground.node("mixed", gpus=3, mig=1, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(ground):
        for number in range(2):
            await ground.pod(f"whole-{number}", limits=WHOLE, scheduler=scheduler)
        await ground.pod("sliced", slices={"3g.20gb": 2}, scheduler=scheduler)
        await ground.bound("whole-0", "whole-1", "sliced")
        assert {claim.spec.gpu_uuid for claim in await ground.claims()} == {ground.gpus["mixed"][0]}
        await ground.pod("third", limits=WHOLE, scheduler=scheduler)
        assert "too few free GPUs" in await ground.waits("third")
        await ground.pod("more", slices={"1g.5gb": 1}, scheduler=scheduler)
        assert "1g.5gb" in await ground.waits("more")
        await ground.delete("whole-0")
        await ground.bound("third")


async def test_x04_a_gpu_that_is_lost_is_given_to_nobody(ground: Ground) -> None:
    await ground.node("n1", gpus=1, mig=0, resources={names.NVIDIA_GPU: "1"})
    report = await ground.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    gpus = [{**gpu, "healthy": False} for gpu in report["status"]["gpus"]]
    await _report(ground, "n1", gpus)
    async with scheduling(ground):
        await ground.pod("a", limits=WHOLE)
        await ground.waits("a")
        await _report(ground, "n1", [{**gpu, "healthy": True} for gpu in gpus])
        await ground.bound("a")


async def test_s09_places_of_slices_that_others_made_are_avoided(any_ground: Ground) -> None:
    ground = any_ground
    await ground.node("n1", gpus=1)
    report = await ground.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    (gpu,) = report["status"]["gpus"]
    await _report(ground, "n1", [{**gpu, "foreign": [{"start": 0, "size": 4}]}])
    async with scheduling(ground):
        for name in "ab":
            await ground.pod(name, slices={"3g.20gb": 1})

        async def one_is_bound() -> str | None:
            bound = [name for name in "ab" if (await ground.get(name)).spec.node_name]
            return bound[0] if len(bound) == 1 else None

        first = await until(one_is_bound)
        (claim,) = await ground.claims()
        assert claim.spec.mig_placement.start == 4
        second = "b" if first == "a" else "a"
        assert "no free place" in await ground.waits(second)
        await _report(ground, "n1", [{**gpu, "foreign": []}])
        await ground.bound(second)
    await ground.no_overlap()


@pytest.mark.parametrize(("cluster", "pod", "node"), [("spread", "pack", "full"), ("pack", "spread", "empty")])
async def test_s05_the_cluster_has_a_policy_and_a_pod_may_have_another(
    ground: Ground, cluster: str, pod: str, node: str
) -> None:
    await ground.node("empty")
    await ground.node("full")
    other = {"full": "empty", "empty": "full"}[node]
    async with scheduling(ground, policy=cluster):
        await ground.pod("first", slices={"1g.5gb": 4}, selector={names.HOSTNAME_LABEL: "full"})
        await ground.bound("first")
        await ground.pod("own", slices={"1g.5gb": 1}, annotations={names.POLICY: pod})
        assert await ground.bound("own") == {"own": node}
        await ground.delete("own")
        await ground.pod("common", slices={"1g.5gb": 1})
        assert await ground.bound("common") == {"common": other}


async def _report(ground: Ground, node: str, gpus: list[dict[str, object]]) -> None:
    await ground.client.patch(
        kinds.NODE_ACCELERATORS, node, {"status": {"gpus": gpus}}, namespace=NAMESPACE, subresource="status"
    )
