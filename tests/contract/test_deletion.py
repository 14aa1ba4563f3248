"""Finalizers, preconditions, grace, propagation and garbage collection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, RawRequests, config_map, pod, until


async def gone(ask: RawRequests, path: str) -> None:
    async def absent() -> bool:
        return (await ask("GET", path)).code == 404

    await until(absent, f"{path} is gone")


async def test_an_object_without_finalizers_is_deleted_at_once(ask: RawRequests, maps: str) -> None:
    uid = (await ask("POST", maps, config_map("a"))).meta["uid"]
    answer = await ask("DELETE", f"{maps}/a")
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    again = await ask("DELETE", f"{maps}/a")
    assert (again.code, again.reason, again.message) == (404, "NotFound", 'configmaps "a" not found')


async def test_finalizers_hold_until_the_last_one_goes(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("a", finalizers=["x.y/one", "x.y/two"]))
    marked = await ask("DELETE", f"{maps}/a")
    assert marked.meta["deletionGracePeriodSeconds"] == 0
    again = await ask("DELETE", f"{maps}/a")
    assert again.meta["resourceVersion"] == marked.meta["resourceVersion"]
    more = await ask("PATCH", f"{maps}/a", {"metadata": {"finalizers": ["x.y/one", "x.y/two", "x.y/new"]}}, MERGE_PATCH)
    assert (more.code, more.reason) == (422, "Invalid")
    assert more.causes[0] == ("FieldValueForbidden", "metadata.finalizers")
    await ask("PATCH", f"{maps}/a", {"metadata": {"finalizers": ["x.y/two"]}}, MERGE_PATCH)
    assert (await ask("GET", f"{maps}/a")).code == 200
    last = await ask("PATCH", f"{maps}/a", {"metadata": {"finalizers": []}}, MERGE_PATCH)
    assert last.code == 200
    assert (await ask("GET", f"{maps}/a")).code == 404


async def test_preconditions_protect_a_successor(ask: RawRequests, maps: str) -> None:
    old = (await ask("POST", maps, config_map("a"))).meta
    await ask("DELETE", f"{maps}/a")
    new = (await ask("POST", maps, config_map("a"))).meta
    for preconditions in ({"uid": old["uid"]}, {"resourceVersion": old["resourceVersion"]}):
        answer = await ask("DELETE", f"{maps}/a", {"preconditions": preconditions})
        assert (answer.code, answer.reason) == (409, "Conflict")
    good = {"preconditions": {"uid": new["uid"], "resourceVersion": new["resourceVersion"]}}
    assert (await ask("DELETE", f"{maps}/a", good)).code == 200


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"propagationPolicy": "Nonsense"}, 422),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"dryRun": ["Some"]}, 422),
    ],
)
async def test_bad_options_delete_nothing(ask: RawRequests, maps: str, options: dict[str, Any], code: int) -> None:
    await ask("POST", maps, config_map("a"))
    assert (await ask("DELETE", f"{maps}/a", options)).code == code
    assert (await ask("GET", f"{maps}/a")).code == 200


async def test_a_collection_goes_by_selector(ask: RawRequests, maps: str) -> None:
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        await ask("POST", maps, config_map(name, labels={"x": label}))
    answer = await ask("DELETE", maps, labelSelector="x=1")
    assert [each["metadata"]["name"] for each in answer.body["items"]] == ["a", "b"]
    left = (await ask("GET", maps, labelSelector="x")).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["c"]


async def test_a_pod_without_node_goes_at_once_and_answers_itself(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("p"))
    answer = await ask("DELETE", f"{pods}/p")
    assert (answer.code, answer.body["kind"]) == (200, "Pod")
    assert (await ask("GET", f"{pods}/p")).code == 404


async def test_a_bound_pod_waits_for_its_kubelet_and_its_grace_only_shrinks(ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, {**pod("p", nodeName="nowhere"), "metadata": {"name": "p", "finalizers": ["x.y/z"]}})
    first = (await ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 40})).meta
    assert first["deletionGracePeriodSeconds"] == 40
    shorter = (await ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 5})).meta
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    longer = (await ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 60})).meta
    assert longer["deletionGracePeriodSeconds"] == 5
    done = (await ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})).meta
    assert done["deletionGracePeriodSeconds"] == 0
    await ask("PATCH", f"{pods}/p", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    await gone(ask, f"{pods}/p")


async def test_dry_runs_change_nothing(ask: RawRequests, maps: str) -> None:
    assert (await ask("POST", maps, config_map("a"), dryRun="All")).code == 201
    assert (await ask("GET", f"{maps}/a")).code == 404
    made = (await ask("POST", maps, config_map("a"))).body
    assert (await ask("PATCH", f"{maps}/a", {"data": {"a": "9"}}, MERGE_PATCH, dryRun="All")).body["data"]["a"] == "9"
    assert (await ask("PUT", f"{maps}/a", config_map("a", {}), dryRun="All")).code == 200
    assert (await ask("DELETE", f"{maps}/a", dryRun="All")).code == 200
    assert (await ask("DELETE", maps, dryRun="All")).code == 200
    assert (await ask("GET", f"{maps}/a")).body == made
    assert (await ask("POST", maps, config_map("b"), dryRun="Some")).code == 422


def owned(name: str, owner: dict[str, Any], *, block: bool = False) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    return config_map(name, ownerReferences=[reference | ({"blockOwnerDeletion": True} if block else {})])


async def test_dependents_follow_their_owner_in_the_background(ask: RawRequests, maps: str) -> None:
    owner = (await ask("POST", maps, config_map("owner"))).meta
    await ask("POST", maps, owned("child", owner))
    await ask("DELETE", f"{maps}/owner", {"propagationPolicy": "Background"})
    assert (await ask("GET", f"{maps}/owner")).code == 404
    await gone(ask, f"{maps}/child")


async def test_in_the_foreground_the_owner_goes_last(ask: RawRequests, maps: str) -> None:
    owner = (await ask("POST", maps, config_map("owner"))).meta
    child = owned("child", owner, block=True)
    child["metadata"]["finalizers"] = ["x.y/z"]
    await ask("POST", maps, child)
    marked = await ask("DELETE", f"{maps}/owner", {"propagationPolicy": "Foreground"})
    assert marked.meta["finalizers"] == ["foregroundDeletion"]

    async def child_marked() -> bool:
        return "deletionTimestamp" in (await ask("GET", f"{maps}/child")).meta

    await until(child_marked, "the dependent is being deleted")
    assert (await ask("GET", f"{maps}/owner")).code == 200
    await ask("PATCH", f"{maps}/child", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    await gone(ask, f"{maps}/owner")
    assert (await ask("GET", f"{maps}/child")).code == 404


async def test_orphans_stay_and_forget_their_owner(ask: RawRequests, maps: str) -> None:
    owner = (await ask("POST", maps, config_map("owner"))).meta
    await ask("POST", maps, owned("child", owner))

    async def seen() -> bool:  # give the collector time to know the dependent
        return (await ask("GET", f"{maps}/child")).code == 200

    await until(seen, "the dependent is there")
    await ask("DELETE", f"{maps}/owner", {"propagationPolicy": "Orphan"})
    await gone(ask, f"{maps}/owner")
    child = await ask("GET", f"{maps}/child")
    assert child.code == 200
    assert not child.meta.get("ownerReferences")


async def test_a_dependent_of_an_owner_that_never_was_is_collected(ask: RawRequests, maps: str) -> None:
    ghost = {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}
    await ask("POST", maps, owned("child", ghost))
    await gone(ask, f"{maps}/child")


async def test_a_namespace_takes_its_content_with_it(ask: RawRequests, namespace: str) -> None:
    name = f"{namespace}-more"
    maps = f"/api/v1/namespaces/{name}/configmaps"
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await ask("POST", maps, config_map("a", finalizers=["x.y/z"]))
    marked = await ask("DELETE", f"/api/v1/namespaces/{name}")
    assert marked.body["status"]["phase"] == "Terminating"
    refused = await ask("POST", maps, config_map("late"))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.causes == [("NamespaceTerminating", "metadata.namespace")]

    async def content_marked() -> bool:
        return "deletionTimestamp" in (await ask("GET", f"{maps}/a")).meta

    await until(content_marked, "the content is being deleted")
    assert (await ask("GET", f"/api/v1/namespaces/{name}")).code == 200
    await ask("PATCH", f"{maps}/a", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    await gone(ask, f"/api/v1/namespaces/{name}")
