"""Binding, eviction, scale, tokens, reviews."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, RawRequests, deployment, pod, until

JSON = dict[str, Any]


def binding(name: str, node: str = "nowhere", **metadata: Any) -> JSON:
    body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
    return {"apiVersion": "v1", "kind": "Binding", **body}


async def remove(ask: RawRequests, path: str) -> None:
    await ask("DELETE", path, {"gracePeriodSeconds": 0})


async def test_a_pod_is_bound_once(ask: RawRequests, pods: str) -> None:
    made = (await ask("POST", pods, pod("p"))).meta
    wrong = await ask("POST", f"{pods}/p/binding", binding("p", uid="other"))
    assert (wrong.code, wrong.reason) == (409, "Conflict")
    answer = await ask("POST", f"{pods}/p/binding", binding("p", uid=made["uid"], annotations={"a": "b"}))
    assert (answer.code, answer.body["status"]) == (201, "Success")
    bound = await ask("GET", f"{pods}/p")
    assert bound.body["spec"]["nodeName"] == "nowhere"
    assert bound.meta["annotations"] == {"a": "b"}
    assert bound.meta["generation"] == 1
    scheduled = [each for each in bound.body["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert [each["status"] for each in scheduled] == ["True"]
    again = await ask("POST", f"{pods}/p/binding", binding("p", "elsewhere"))
    assert (again.code, again.reason, again.message) == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "nowhere"',
    )
    await remove(ask, f"{pods}/p")


async def test_gated_leaving_and_missing_pods_are_not_bound(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("gated", schedulingGates=[{"name": "x.y/z"}]))
    gated = await ask("POST", f"{pods}/gated/binding", binding("gated"))
    assert (gated.code, "has non-empty .spec.schedulingGates" in gated.message) == (409, True)
    await ask("POST", pods, pod("leaving") | {"metadata": {"name": "leaving", "finalizers": ["x.y/z"]}})
    await ask("DELETE", f"{pods}/leaving")
    leaving = await ask("POST", f"{pods}/leaving/binding", binding("leaving"))
    assert (leaving.code, "is being deleted" in leaving.message) == (409, True)
    await ask("PATCH", f"{pods}/leaving", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert (await ask("POST", f"{pods}/missing/binding", binding("missing"))).code == 404


async def test_a_dry_binding_binds_nothing(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("p"))
    assert (await ask("POST", f"{pods}/p/binding", binding("p"), dryRun="All")).code == 201
    assert "nodeName" not in (await ask("GET", f"{pods}/p")).body["spec"]


@pytest.fixture
async def protected(ask: RawRequests, pods: str, namespace: str) -> str:
    """A running pod under a budget that allows no disruption; answers the pod's path."""
    await ask("POST", pods, pod("p", nodeName="nowhere") | {"metadata": {"name": "p", "labels": {"app": "x"}}})
    state = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await ask("PATCH", f"{pods}/p/status", {"status": state}, MERGE_PATCH)
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await ask("POST", budgets, {"metadata": {"name": "b"}, "spec": spec})

    async def counted() -> bool:
        found = (await ask("GET", f"{budgets}/b")).body.get("status", {})
        return (found.get("observedGeneration"), found.get("currentHealthy")) == (1, 1)

    await until(counted, "the budget has counted its pod")
    return f"{pods}/p"


EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


async def test_an_exhausted_budget_refuses_with_its_numbers(ask: RawRequests, protected: str) -> None:
    answer = await ask("POST", f"{protected}/eviction", EVICTION | {"metadata": {"name": "p"}})
    assert (answer.code, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.body["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}
    ]
    assert "deletionTimestamp" not in (await ask("GET", protected)).meta
    await remove(ask, protected)


async def test_a_budget_with_room_lets_a_pod_go(ask: RawRequests, protected: str, namespace: str) -> None:
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await ask("PATCH", f"{budgets}/b", {"spec": {"minAvailable": 0}}, MERGE_PATCH)

    async def evicted() -> bool:
        return (await ask("POST", f"{protected}/eviction", EVICTION | {"metadata": {"name": "p"}})).code == 201

    await until(evicted, "the eviction is allowed")
    leaving = await ask("GET", protected)
    assert leaving.meta["deletionTimestamp"]
    target = [each for each in leaving.body["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert [each["reason"] for each in target] == ["EvictionByEvictionAPI"]
    await remove(ask, protected)


async def test_a_pod_that_does_not_run_is_evicted_at_once(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("p"))
    answer = await ask("POST", f"{pods}/p/eviction", EVICTION | {"metadata": {"name": "p"}})
    assert (answer.code, answer.body["status"]) == (201, "Success")
    assert (await ask("GET", f"{pods}/p")).code == 404
    missing = await ask("POST", f"{pods}/p/eviction", EVICTION | {"metadata": {"name": "p"}})
    assert (missing.code, missing.reason) == (404, "NotFound")


async def test_scale_shows_and_changes_replicas(ask: RawRequests, deployments: str) -> None:
    path = f"{deployments}/d/scale"
    await ask("POST", deployments, deployment("d", 0))
    scale = (await ask("GET", path)).body
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {})
    assert scale["status"] == {"replicas": 0, "selector": "app=d"}
    assert (await ask("PATCH", path, {"spec": {"replicas": 1}}, MERGE_PATCH)).body["spec"] == {"replicas": 1}
    stale = await ask("PUT", path, scale | {"spec": {"replicas": 3}})
    assert (stale.code, stale.reason) == (409, "Conflict")
    negative = await ask("PATCH", path, {"spec": {"replicas": -1}}, MERGE_PATCH)
    assert (negative.code, negative.causes) == (422, [("FieldValueInvalid", "spec.replicas")])
    other = scale | {"metadata": {"name": "other"}}
    assert (await ask("PUT", path, other)).code == 400
    blind = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 0}}
    assert (await ask("PUT", path, blind)).code == 200


async def test_tokens_are_issued_for_accounts_that_exist(ask: RawRequests, pods: str, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    answer = await ask("POST", path, {"spec": {"expirationSeconds": 600}})
    assert answer.code == 201
    review = {"spec": {"token": answer.body["status"]["token"]}}
    found = (await ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)).body["status"]
    assert found["authenticated"]
    assert found["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    short = await ask("POST", path, {"spec": {"expirationSeconds": 5}})
    assert (short.code, short.reason) == (422, "Invalid")
    missing = await ask("POST", path.replace("/default/", "/nobody/"), {"spec": {}})
    assert missing.code == 404


async def test_reviews_say_who_may_what(ask: RawRequests, namespace: str) -> None:
    attributes = {"verb": "get", "resource": "pods", "namespace": namespace}
    path = "/apis/authorization.k8s.io/v1"
    mine = await ask("POST", f"{path}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}})
    assert (mine.code, mine.body["status"]["allowed"]) == (201, True)
    other = {"user": "somebody", "resourceAttributes": attributes}
    theirs = await ask("POST", f"{path}/subjectaccessreviews", {"spec": other})
    assert theirs.body["status"]["allowed"] is False


async def test_logs_of_a_pod_without_node_are_empty_and_containers_must_exist(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("p"))
    two = pod("two")
    two["spec"]["containers"].append({"name": "d", "image": "i"})
    await ask("POST", pods, two)
    assert (await ask("GET", f"{pods}/p/log")).code == 204
    answer = await ask("GET", f"{pods}/p/log", container="z")
    assert (answer.code, answer.message) == (400, "container z is not valid for pod p")
    answer = await ask("GET", f"{pods}/two/log")
    assert answer.message == "a container name must be specified for pod two, choose one of: [c d]"
