"""Dynamic slices fall back if tiers are set explicitly: free means that the grids have a place (D01)."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.cluster import errors
from tests.admission.fallback.cluster import FallbackCluster, asked, fallback, fallback_cluster
from tests.builders import accelerators
from tests.builders.pods import fallback_pod
from tests.environments.waiting import eventually

LADDER = {names.FALLBACK_TIERS: "3g.20gb > 2g.10gb > 1g.5gb"}


async def slicing(it: FallbackCluster) -> None:
    """One node with one A100 whose agent is ready, and the kinds of the slicing planes."""
    await it.slicing_kinds()
    offered = {f"mig.das.com/{profile}": 7 for profile in ("3g.20gb", "2g.10gb", "1g.5gb")}
    await it.node("n1", {**offered, "gpu.das.com/mem": 40}, {names.MIG_CAPABLE_LABEL: "true"})
    where: dict[str, Any] = {"namespace": names.DAS_NAMESPACE}
    made = accelerators.accelerator("n1", agent_uid=await agent(it))
    await it.client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": "n1"}}, **where)
    await it.client.patch(kinds.NODE_ACCELERATORS, "n1", {"status": made["status"]}, subresource="status", **where)


async def agent(it: FallbackCluster) -> str:
    """The uid of the pod of the node's agent, which is ready."""
    where: dict[str, Any] = {"namespace": names.DAS_NAMESPACE}
    await it.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, **where)
    body = accelerators.agent_pod("n1")
    made = await it.client.create(kinds.PODS, body, **where)
    ready = {"status": body["status"]}
    await it.client.patch(kinds.PODS, body["metadata"]["name"], ready, subresource="status", **where)
    uid: str = made["metadata"]["uid"]
    return uid


def sliced(profile: str, **more: Any) -> dict[str, Any]:
    return fallback_pod(limits={f"mig.das.com/{profile}": 1}, scheduler=names.DAS_SCHEDULER, **more)


@pytest.mark.parametrize("before", [True, False], ids=["installed-before", "installed-later"])
async def test_d01_slices_fall_back_by_what_the_grids_can_take(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:  # noqa: FBT001
    monkeypatch.setattr("apportion.cluster.optional_informers.ABSENT_SECONDS", 0.2)
    async with fallback_cluster(replicas=0, document=False) as it:
        if before:
            await slicing(it)
        await it.start("replica-0")
        if not before:
            await slicing(it)
        await eventually(lambda: fits(it))
        first = [await it.create(sliced("3g.20gb", annotations=LADDER)) for _ in range(2)]
        assert [fallback(each) for each in first] == [None, None]
        third = await it.create(sliced("3g.20gb", annotations=LADDER))
        assert fallback(third) == "3g.20gb->2g.10gb->1g.5gb"  # no grid has room: the last tier, and it waits
        assert asked(third) == {"mig.das.com/1g.5gb": 1}
        await it.remove(first[0])
        fourth = await it.create(sliced("3g.20gb", annotations=LADDER))
        assert fallback(fourth) == "3g.20gb->2g.10gb"  # the third, older, has a place in thought now


async def fits(it: FallbackCluster) -> bool:
    made = await it.create(sliced("3g.20gb", annotations=LADDER), dry_run=True)
    return fallback(made) is None


async def test_d01_slices_without_explicit_tiers_never_fall_back() -> None:
    async with fallback_cluster(replicas=0, document=False) as it:
        await slicing(it)
        await it.start("replica-0")
        for _ in range(4):
            assert fallback(await it.create(sliced("3g.20gb"))) is None


async def test_d04_a_tier_that_nobody_may_ask_for_is_refused_and_others_are_answered_still() -> None:
    async with fallback_cluster(replicas=0, document=False) as it:
        await slicing(it)
        await it.start("replica-0")
        keep = {**LADDER, names.FALLBACK_KEEP_MEMORY: "true"}
        much = fallback_pod(limits={"mig.das.com/3g.20gb": 300}, schedulerName="das-scheduler", annotations=keep)
        with pytest.raises(errors.BadRequest, match="must be at most 1000"):
            await it.create(much)
        assert fallback(await it.create(sliced("3g.20gb", annotations=LADDER))) is None
