"""Which disruption budgets protect a pod, and how many evictions they allow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.apis.identities import PodUID
from apportion.core.cluster_changes import Happened
from apportion.view.budgets import BudgetKey
from tests.scheduler.cluster import embedded
from tests.view.followed import Followed, followed, read_afresh

Json = dict[str, Any]
WEB = BudgetKey("default/web")


@pytest.fixture
async def made() -> AsyncIterator[Followed]:
    async with embedded() as cluster, followed(cluster) as found:
        yield found


async def budget(made: Followed, name: str, selector: Json | None, *, allowed: int = 0) -> None:
    spec = {"minAvailable": 1, **({"selector": selector} if selector is not None else {})}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await made.client.create(kinds.POD_DISRUPTION_BUDGETS, body)
    await allow(made, name, allowed)


async def allow(made: Followed, name: str, allowed: int, generation: int | None = None) -> None:
    current = await made.client.get(kinds.POD_DISRUPTION_BUDGETS, name, namespace="default")
    seen = current["metadata"]["generation"] if generation is None else generation
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status = {"disruptionsAllowed": allowed, "observedGeneration": seen, **counts}
    await made.client.patch(
        kinds.POD_DISRUPTION_BUDGETS, name, {"status": status}, namespace="default", subresource="status"
    )


async def running(made: Followed, name: str, **options: Any) -> PodUID:
    uid = await made.pod(name, node="n1", **options)
    await made.client.patch(
        kinds.PODS,
        name,
        {"status": {"phase": "Running"}},
        namespace=options.get("namespace", "default"),
        subresource="status",
    )
    return uid


async def test_q07_the_budgets_of_a_pod_are_those_of_its_namespace_that_select_it(made: Followed) -> None:
    await made.client.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
    await made.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": "other"}})
    await budget(made, "web", {"matchLabels": {"app": "web"}}, allowed=2)
    await budget(made, "all", {})
    await budget(made, "none", None)
    web = await running(made, "a", labels={"app": "web"})
    plain = await running(made, "b")
    elsewhere = await running(made, "c", namespace="other", labels={"app": "web"})
    budgets = made.view.budgets
    await made.until(lambda: budgets.of(web) == ("default/all", WEB))
    await made.until(lambda: budgets.of(plain) == ("default/all",))
    await made.until(lambda: made.view.fleet.pod_nodes.get(elsewhere))
    assert budgets.of(elsewhere) == ()
    await made.until(lambda: budgets.allowed(WEB) == 2)
    assert budgets.allowed(BudgetKey("default/all")) == 0
    assert budgets.allowed(BudgetKey("default/missing")) == 0


async def test_q07_a_budget_allows_nothing_until_its_controller_has_seen_its_last_change(made: Followed) -> None:
    await budget(made, "web", {}, allowed=3)
    await made.until(lambda: made.view.budgets.allowed(WEB) == 3)
    await made.client.patch(kinds.POD_DISRUPTION_BUDGETS, "web", {"spec": {"minAvailable": 2}}, namespace="default")
    await made.until(lambda: made.view.budgets.allowed(WEB) == 0)
    reader = made.view.changes.reader()
    reader.take()
    await allow(made, "web", 1)
    await made.until(lambda: made.view.budgets.allowed(WEB) == 1)
    assert Happened.QUEUE_CHANGED in [change.kind for change in reader.take()], "whoever it stopped tries again"


async def test_q07_pods_that_the_eviction_api_evicts_at_once_are_under_no_budget(made: Followed) -> None:
    await budget(made, "web", {})
    uid = await made.pod("a", node="n1")
    await made.until(lambda: made.view.pods.get(uid))
    assert made.view.budgets.of(uid) == (), "it does not run yet"
    await made.client.patch(
        kinds.PODS, "a", {"status": {"phase": "Running"}}, namespace="default", subresource="status"
    )
    await made.until(lambda: made.view.budgets.of(uid) == (WEB,))
    await made.client.delete(kinds.POD_DISRUPTION_BUDGETS, "web", namespace="default")
    await made.until(lambda: made.view.budgets.of(uid) == ())


async def test_q07_budgets_are_read_afresh_too() -> None:
    async with embedded() as cluster, followed(cluster) as made:
        await budget(made, "web", {}, allowed=1)
        assert (await read_afresh(cluster)).budgets.allowed(WEB) == 1


async def test_q07_a_refusal_of_the_server_counts_until_a_budget_changes(made: Followed) -> None:
    uid = await running(made, "web", labels={"app": "web"})
    budgets = made.view.budgets
    await made.until(lambda: (pod := made.view.pods.get(uid)) is not None and pod.status.phase == "Running")
    assert budgets.of(uid) == ()
    budgets.refused((uid,))
    assert [budgets.allowed(key) for key in budgets.of(uid)] == [0]
    await budget(made, "web", {"matchLabels": {"app": "web"}}, allowed=1)
    await made.until(lambda: budgets.of(uid) == (WEB,) and budgets.allowed(WEB) == 1)
