"""Deletion: at once, finalizers, a pod's grace, preconditions, propagation, collections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pocketkube.api.direct_requests import MERGE_PATCH, DirectRequests, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def test_an_object_without_finalizers_is_deleted_at_once_and_answers_a_status(ask: DirectRequests) -> None:
    made = (await ask("POST", MAPS, config_map("a"))).body
    answer = await ask("DELETE", f"{MAPS}/a")
    assert (answer.code, answer.body["kind"], answer.body["status"]) == (200, "Status", "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await ask("DELETE", f"{MAPS}/a")).reason == "NotFound"


async def test_finalizers_hold_an_object_until_the_last_one_goes(ask: DirectRequests) -> None:
    await ask("POST", MAPS, config_map("a", finalizers=["x.y/one", "x.y/two"]))
    answer = await ask("DELETE", f"{MAPS}/a")
    assert answer.body["metadata"]["deletionTimestamp"]
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await ask("DELETE", f"{MAPS}/a")
    assert again.body["metadata"]["resourceVersion"] == answer.body["metadata"]["resourceVersion"]
    more = {"metadata": {"finalizers": ["x.y/one", "x.y/two", "x.y/three"]}}
    assert (await ask("PATCH", f"{MAPS}/a", more, media=MERGE_PATCH)).reason == "Invalid"
    await ask("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["x.y/one"]}}, media=MERGE_PATCH)
    assert (await ask("GET", f"{MAPS}/a")).code == 200
    assert (await ask("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, media=MERGE_PATCH)).code == 200
    assert (await ask("GET", f"{MAPS}/a")).code == 404


async def test_the_deletion_timestamp_cannot_be_taken_back(ask: DirectRequests) -> None:
    await ask("POST", MAPS, config_map("a", finalizers=["x.y/one"]))
    marked = (await ask("DELETE", f"{MAPS}/a")).body["metadata"]["deletionTimestamp"]
    body = config_map("a", finalizers=["x.y/one"])
    assert (await ask("PUT", f"{MAPS}/a", body)).body["metadata"]["deletionTimestamp"] == marked


async def test_a_pod_without_a_node_goes_at_once(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p"))
    answer = await ask("DELETE", f"{PODS}/p")
    assert answer.body["kind"] == "Pod"
    assert (await ask("GET", f"{PODS}/p")).code == 404


async def test_a_bound_pod_stays_terminating_until_its_kubelet_deletes_it(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p", node="n"))
    first = (await ask("DELETE", f"{PODS}/p")).body["metadata"]
    assert first["deletionGracePeriodSeconds"] == 30
    assert first["generation"] == 2
    shorter = (await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    longer = (await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 60})).body["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5
    assert (await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})).code == 200
    assert (await ask("GET", f"{PODS}/p")).code == 404


async def test_a_pod_with_a_finalizer_survives_grace_zero(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p", node="n", finalizers=["x.y/z"]))
    answer = await ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    await ask("PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, media=MERGE_PATCH)
    assert (await ask("GET", f"{PODS}/p")).code == 404


async def test_a_finished_pod_goes_at_once(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p", node="n"))
    await ask("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, media=MERGE_PATCH)
    await ask("DELETE", f"{PODS}/p")
    assert (await ask("GET", f"{PODS}/p")).code == 404


async def test_preconditions_protect_a_successor_of_the_same_name(ask: DirectRequests) -> None:
    old = (await ask("POST", MAPS, config_map("a"))).body["metadata"]
    await ask("DELETE", f"{MAPS}/a")
    new = (await ask("POST", MAPS, config_map("a"))).body["metadata"]
    for preconditions in ({"uid": old["uid"]}, {"resourceVersion": old["resourceVersion"]}):
        answer = await ask("DELETE", f"{MAPS}/a", {"preconditions": preconditions})
        assert (answer.code, answer.reason) == (409, "Conflict")
    preconditions = {"uid": new["uid"], "resourceVersion": new["resourceVersion"]}
    assert (await ask("DELETE", f"{MAPS}/a", {"preconditions": preconditions})).code == 200


@pytest.mark.parametrize(
    ("options", "finalizer"),
    [
        ({"propagationPolicy": "Foreground"}, "foregroundDeletion"),
        ({"propagationPolicy": "Orphan"}, "orphan"),
        ({"orphanDependents": True}, "orphan"),
    ],
)
async def test_propagation_policies_are_finalizers(
    ask: DirectRequests, options: dict[str, Any], finalizer: str
) -> None:
    await ask("POST", MAPS, config_map("a"))
    answer = await ask("DELETE", f"{MAPS}/a", options)
    assert answer.body["metadata"]["finalizers"] == [finalizer]
    background = await ask("DELETE", f"{MAPS}/a", {"propagationPolicy": "Background"})
    assert background.code == 200
    assert (await ask("GET", f"{MAPS}/a")).code == 404


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"propagationPolicy": "Nonsense"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"gracePeriodSeconds": "soon"}, 400),
        ({"preconditions": 5}, 400),
        ({"kind": "Pod", "apiVersion": "v1"}, 400),
        ({"dryRun": ["Some"]}, 422),
        (b"{", 400),
        (b"[]", 400),
    ],
)
async def test_bad_options_delete_nothing(ask: DirectRequests, options: Any, code: int) -> None:
    await ask("POST", MAPS, config_map("a"))
    assert (await ask("DELETE", f"{MAPS}/a", options)).code == code
    assert (await ask("GET", f"{MAPS}/a")).code == 200


async def test_a_collection_is_deleted_by_selector(ask: DirectRequests) -> None:
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        await ask("POST", MAPS, config_map(name, labels={"x": label}))
    answer = await ask("DELETE", f"{MAPS}?labelSelector=x=1")
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["a", "b"]
    left = (await ask("GET", MAPS)).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["c"]


async def test_a_namespace_waits_for_its_finalizer(ask: DirectRequests) -> None:
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    answer = await ask("DELETE", "/api/v1/namespaces/n")
    assert answer.body["status"]["phase"] == "Terminating"
    refused = await ask("POST", "/api/v1/namespaces/n/configmaps", config_map("a"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    found = (await ask("GET", "/api/v1/namespaces/n")).body
    found["spec"]["finalizers"] = []
    assert (await ask("PUT", "/api/v1/namespaces/n/finalize", found)).code == 200
    assert (await ask("GET", "/api/v1/namespaces/n")).code == 404


async def test_system_namespaces_stay(ask: DirectRequests) -> None:
    assert (await ask("DELETE", "/api/v1/namespaces/default")).code == 403
