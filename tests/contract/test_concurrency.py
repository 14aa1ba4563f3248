"""Optimistic concurrency, identity and generation."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.raw_requests import MERGE_PATCH, RawRequests, config_map, deployment, pod


async def test_versions_grow_with_every_change_and_stay_without_one(ask: RawRequests, maps: str) -> None:
    versions = [int((await ask("POST", maps, config_map("a"))).meta["resourceVersion"])]
    for value in ("2", "2", "3"):
        patched = await ask("PATCH", f"{maps}/a", {"data": {"a": value}}, MERGE_PATCH)
        versions.append(int(patched.meta["resourceVersion"]))
    assert versions[0] < versions[1] == versions[2] < versions[3]


async def test_a_replace_of_an_old_version_is_refused(ask: RawRequests, maps: str) -> None:
    old = (await ask("POST", maps, config_map("a"))).body
    await ask("PATCH", f"{maps}/a", {"data": {"b": "2"}}, MERGE_PATCH)
    answer = await ask("PUT", f"{maps}/a", old)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_replace_without_version_overwrites(ask: RawRequests, maps: str) -> None:
    made = (await ask("POST", maps, config_map("a", labels={"x": "y"}))).body
    answer = await ask("PUT", f"{maps}/a", config_map("a", {"b": "2"}))
    assert (answer.code, answer.body["data"]) == (200, {"b": "2"})
    assert "labels" not in answer.meta
    assert answer.meta["uid"] == made["metadata"]["uid"]


async def test_leases_insist_on_a_version(ask: RawRequests, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    assert (await ask("POST", path, lease)).code == 201
    answer = await ask("PUT", f"{path}/l", lease)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == [("FieldValueInvalid", "metadata.resourceVersion")]


@pytest.mark.parametrize("claim", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_a_write_that_means_another_object_is_refused(ask: RawRequests, maps: str, claim: dict[str, str]) -> None:
    await ask("POST", maps, config_map("a"))
    assert (await ask("PUT", f"{maps}/a", config_map("a", {}, **claim))).reason == "Conflict"
    patched = await ask("PATCH", f"{maps}/a", {"metadata": claim}, MERGE_PATCH)
    assert patched.reason == ("Invalid" if "uid" in claim else "Conflict")
    assert (await ask("GET", f"{maps}/a")).body["data"] == {"a": "1"}


async def test_concurrent_patches_lose_nothing(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("a", {}))
    answers = await asyncio.gather(
        *(ask("PATCH", f"{maps}/a", {"data": {f"k{n}": "v"}}, MERGE_PATCH) for n in range(4))
    )
    done = {f"k{n}" for n, answer in enumerate(answers) if answer.code == 200}
    assert done <= (await ask("GET", f"{maps}/a")).body["data"].keys()
    assert {answer.code for answer in answers} <= {200, 409}


async def test_of_many_creates_of_one_name_one_wins(ask: RawRequests, maps: str) -> None:
    answers = await asyncio.gather(*(ask("POST", maps, config_map("a", {"n": str(n)})) for n in range(5)))
    assert sorted(answer.code for answer in answers) == [201, 409, 409, 409, 409]
    refused = next(answer for answer in answers if answer.code == 409)
    assert (refused.reason, refused.message) == ("AlreadyExists", 'configmaps "a" already exists')


async def test_names_are_generated(ask: RawRequests, maps: str) -> None:
    answers = await asyncio.gather(*(ask("POST", maps, {"metadata": {"generateName": "x-"}}) for _ in range(5)))
    names = {answer.meta["name"] for answer in answers}
    assert len(names) == 5
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


async def test_what_only_the_server_gives_cannot_be_chosen(ask: RawRequests, maps: str) -> None:
    body = config_map(
        "a",
        uid="mine",
        creationTimestamp="2001-01-01T00:00:00Z",
        generation=7,
        deletionTimestamp="2001-01-01T00:00:00Z",
    )
    made = await ask("POST", maps, body)
    assert made.code == 201
    assert made.meta["uid"] != "mine"
    assert made.meta["creationTimestamp"] > "2020"
    assert "deletionTimestamp" not in made.meta
    again = (await ask("PUT", f"{maps}/a", config_map("a", creationTimestamp="2001-01-01T00:00:00Z"))).meta
    assert again["creationTimestamp"] == made.meta["creationTimestamp"]


async def test_generation_counts_changes_of_the_spec(ask: RawRequests, deployments: str) -> None:
    assert (await ask("POST", deployments, deployment("d"))).meta["generation"] == 1
    steps = [
        ("", {"metadata": {"labels": {"x": "y"}}}, 1),
        ("", {"status": {"replicas": 3}}, 1),
        ("/status", {"spec": {"replicas": 5}}, 1),
        ("", {"spec": {"revisionHistoryLimit": 3}}, 2),
        ("", {"spec": {"revisionHistoryLimit": 3}}, 2),
        ("/scale", {"spec": {"replicas": 0}}, 2),
    ]
    for part, patch, generation in steps:
        assert (await ask("PATCH", f"{deployments}/d{part}", patch, MERGE_PATCH)).code == 200
        assert (await ask("GET", f"{deployments}/d")).meta["generation"] == generation, patch


async def test_pods_count_too_and_their_deletion_is_a_change(ask: RawRequests, pods: str) -> None:
    made = await ask("POST", pods, {**pod("p", nodeName="nowhere"), "metadata": {"name": "p", "finalizers": ["x.y/z"]}})
    assert made.meta["generation"] == 1
    await ask("PATCH", f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    assert (await ask("GET", f"{pods}/p")).meta["generation"] == 1
    assert (await ask("DELETE", f"{pods}/p")).meta["generation"] == 2
    await ask("PATCH", f"{pods}/p", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    await ask("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})


async def test_main_and_status_endpoints_write_only_their_part(ask: RawRequests, pods: str) -> None:
    made = await ask("POST", pods, {**pod("p"), "status": {"phase": "Running"}})
    assert made.body["status"]["phase"] == "Pending"
    main = await ask("PATCH", f"{pods}/p", {"status": {"phase": "Running"}}, MERGE_PATCH)
    assert main.body["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running"}, "spec": {"activeDeadlineSeconds": 5}}
    status = await ask("PATCH", f"{pods}/p/status", patch, MERGE_PATCH)
    assert status.body["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in status.body["spec"]
