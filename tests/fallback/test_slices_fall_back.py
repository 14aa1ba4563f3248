"""Slices made on demand fall back where somebody wrote a ladder: free means that the grids have a place (D01)."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.cluster import errors
from tests.fallback.ground import Ground, asked, eventually, fallback, ground, pod

LADDER = {names.FALLBACK_TIERS: "3g.20gb > 2g.10gb > 1g.5gb"}


async def slicing(it: Ground) -> None:
    """One node with one A100 whose agent is ready, and the kinds of the slicing planes."""
    await it.slicing_kinds()
    offered = {f"mig.das.com/{profile}": 7 for profile in ("3g.20gb", "2g.10gb", "1g.5gb")}
    await it.node("n1", {**offered, "gpu.das.com/mem": 40}, {names.MIG_CAPABLE_LABEL: "true"})
    status = {"gpus": [gpu()], "conditions": [condition()], "agent": await agent(it)}
    where: dict[str, Any] = {"namespace": "das-operator"}
    await it.client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": "n1"}}, **where)
    await it.client.patch(kinds.NODE_ACCELERATORS, "n1", {"status": status}, subresource="status", **where)


async def agent(it: Ground) -> dict[str, Any]:
    """The pod of the node's agent, ready."""
    where: dict[str, Any] = {"namespace": names.DAS_NAMESPACE}
    await it.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, **where)
    spec = {"nodeName": "n1", "containers": [{"name": "agent", "image": "apportion"}]}
    body = {"metadata": {"name": "agent-n1", "labels": {names.APP_LABEL: names.AGENT_APP}}, "spec": spec}
    made = await it.client.create(kinds.PODS, body, **where)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await it.client.patch(kinds.PODS, "agent-n1", {"status": ready}, subresource="status", **where)
    return {"namespace": names.DAS_NAMESPACE, "name": "agent-n1", "uid": made["metadata"]["uid"]}


def gpu() -> dict[str, Any]:
    places = {"3g.20gb": (4, [0, 4]), "2g.10gb": (2, [0, 2, 4]), "1g.5gb": (1, list(range(7)))}
    profiles = [{"name": name, "size": size, "starts": starts} for name, (size, starts) in places.items()]
    product = {"uuid": "GPU-1", "model": "NVIDIA A100-PCIE-40GB", "memoryMiB": 40960}
    return product | {"migEnabled": True, "profiles": profiles}


def condition() -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "x",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 0,
    }


def sliced(profile: str, **more: Any) -> dict[str, Any]:
    return pod({f"mig.das.com/{profile}": 1}, schedulerName="das-scheduler", **more)


@pytest.mark.parametrize("before", [True, False], ids=["installed-before", "installed-later"])
async def test_d01_slices_fall_back_by_what_the_grids_can_take(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:  # noqa: FBT001
    monkeypatch.setattr("apportion.admission.optional.LOOK_AGAIN_SECONDS", 0.2)
    async with ground(replicas=0, document=False) as it:
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


async def fits(it: Ground) -> bool:
    made = await it.create(sliced("3g.20gb", annotations=LADDER), dry_run=True)
    return fallback(made) is None


async def test_d01_slices_without_a_ladder_never_fall_back() -> None:
    async with ground(replicas=0, document=False) as it:
        await slicing(it)
        await it.start("replica-0")
        for _ in range(4):
            assert fallback(await it.create(sliced("3g.20gb"))) is None


async def test_d04_a_tier_that_nobody_may_ask_for_is_refused_and_others_are_answered_still() -> None:
    async with ground(replicas=0, document=False) as it:
        await slicing(it)
        await it.start("replica-0")
        keep = {**LADDER, names.FALLBACK_KEEP_MEMORY: "true"}
        much = pod({"mig.das.com/3g.20gb": 300}, schedulerName="das-scheduler", annotations=keep)
        with pytest.raises(errors.BadRequest, match="must be at most 1000"):
            await it.create(much)
        assert fallback(await it.create(sliced("3g.20gb", annotations=LADDER))) is None
