"""Objects through the server: create, replace, patch, generation, conflicts, dry runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from tests.pocketkube.api.direct_requests import APPLY_PATCH, MERGE_PATCH, DirectRequests, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": name}}, "template": template},
    }


async def test_a_new_object_gets_what_only_the_server_gives(client: Client) -> None:
    body = config_map("a", uid="mine", resourceVersion="7", generation=9, creationTimestamp="2001-01-01T00:00:00Z")
    del body["metadata"]["resourceVersion"]
    made = await client.create(kinds.CONFIG_MAPS, body, namespace="default")
    meta = made["metadata"]
    assert meta["uid"] != "mine"
    assert meta["creationTimestamp"] > "2020"
    assert "generation" not in meta
    assert meta["namespace"] == "default"
    assert await client.get(kinds.CONFIG_MAPS, "a", namespace="default") == made


async def test_names_are_generated_and_never_collide(client: Client) -> None:
    body = {"metadata": {"generateName": "x-"}}
    made = await asyncio.gather(*(client.create(kinds.CONFIG_MAPS, body, namespace="default") for _ in range(50)))
    names = {each["metadata"]["name"] for each in made}
    assert len(names) == 50
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


async def test_a_name_is_taken_once(client: Client) -> None:
    await client.create(kinds.CONFIG_MAPS, config_map("a"), namespace="default")
    with pytest.raises(errors.AlreadyExists):
        await client.create(kinds.CONFIG_MAPS, config_map("a"), namespace="default")


async def test_objects_need_a_namespace_that_exists(client: Client) -> None:
    with pytest.raises(errors.NotFound):
        await client.create(kinds.CONFIG_MAPS, config_map("a"), namespace="nowhere")


async def test_generation_counts_changes_of_the_spec_alone(client: Client) -> None:
    made = await client.create(kinds.DEPLOYMENTS, deployment("d"), namespace="default")
    assert made["metadata"]["generation"] == 1
    for patch, subresource, generation in (
        ({"metadata": {"labels": {"x": "y"}}}, None, 1),
        ({"status": {"replicas": 3}}, None, 1),
        ({"status": {"replicas": 3}}, "status", 1),
        ({"spec": {"replicas": 5}}, None, 2),
        ({"spec": {"replicas": 5}}, None, 2),
        ({"spec": {"replicas": 6}}, "status", 2),
        ({"spec": {"replicas": 7}}, "scale", 3),
    ):
        await client.patch(
            kinds.DEPLOYMENTS, "d", patch, namespace="default", how=PatchType.merge, subresource=subresource
        )
        found = await client.get(kinds.DEPLOYMENTS, "d", namespace="default")
        assert found["metadata"]["generation"] == generation, (patch, subresource)


async def test_main_and_status_endpoints_write_only_their_part(client: Client) -> None:
    await client.create(kinds.DEPLOYMENTS, {**deployment("d"), "status": {"replicas": 9}}, namespace="default")
    found = await client.get(kinds.DEPLOYMENTS, "d", namespace="default")
    assert found["status"].get("replicas", 0) == 0
    await client.patch(
        kinds.DEPLOYMENTS,
        "d",
        {"status": {"replicas": 4}, "spec": {"replicas": 8}},
        namespace="default",
        how=PatchType.merge,
        subresource="status",
    )
    found = await client.get(kinds.DEPLOYMENTS, "d", namespace="default")
    assert (found["status"]["replicas"], found["spec"]["replicas"]) == (4, 1)


async def test_a_write_that_changes_nothing_takes_no_version(client: Client) -> None:
    made = await client.create(kinds.DEPLOYMENTS, deployment("d"), namespace="default")
    for _ in range(2):
        same = await client.patch(
            kinds.DEPLOYMENTS, "d", {"spec": {"replicas": 1}}, namespace="default", how=PatchType.merge
        )
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_replace_with_an_old_version_is_a_conflict_and_without_one_is_not(client: Client) -> None:
    old = await client.create(kinds.CONFIG_MAPS, config_map("a"), namespace="default")
    await client.patch(kinds.CONFIG_MAPS, "a", {"data": {"b": "2"}}, namespace="default", how=PatchType.merge)
    with pytest.raises(errors.Conflict):
        await client.replace(kinds.CONFIG_MAPS, old, namespace="default")
    blind = config_map("a", {"c": "3"})
    assert (await client.replace(kinds.CONFIG_MAPS, blind, namespace="default"))["data"] == {"c": "3"}


async def test_leases_and_custom_kinds_insist_on_a_version(client: Client, ask: DirectRequests) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    await client.create(kinds.LEASES, lease, namespace="default")
    answer = await ask("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", lease)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "must be specified for an update" in answer.message


async def test_many_writers_of_one_object_lose_nothing(client: Client) -> None:
    await client.create(kinds.CONFIG_MAPS, config_map("a", {}), namespace="default")
    patches = (
        client.patch(kinds.CONFIG_MAPS, "a", {"data": {f"k{n}": "v"}}, namespace="default", how=PatchType.merge)
        for n in range(30)
    )
    await asyncio.gather(*patches)
    found = await client.get(kinds.CONFIG_MAPS, "a", namespace="default")
    assert len(found["data"]) == 30


async def test_dry_runs_answer_as_if_and_change_nothing(ask: DirectRequests) -> None:
    assert (await ask("POST", f"{MAPS}?dryRun=All", config_map("a"))).code == 201
    assert (await ask("GET", f"{MAPS}/a")).code == 404
    await ask("POST", MAPS, config_map("a"))
    before = (await ask("GET", f"{MAPS}/a")).body
    assert (await ask("POST", f"{MAPS}?dryRun=All", config_map("a"))).reason == "AlreadyExists"
    assert (await ask("PATCH", f"{MAPS}/a?dryRun=All", {"data": {"a": "9"}}, media=MERGE_PATCH)).body["data"][
        "a"
    ] == "9"
    assert (await ask("PUT", f"{MAPS}/a?dryRun=All", config_map("a", {"z": "1"}))).code == 200
    assert (
        await ask(
            "PATCH", f"{MAPS}/a?dryRun=All&fieldManager=m&force=true", config_map("a", {"a": "7"}), media=APPLY_PATCH
        )
    ).code == 200
    assert (await ask("DELETE", f"{MAPS}/a?dryRun=All")).code == 200
    assert (await ask("DELETE", f"{MAPS}?dryRun=All")).code == 200
    assert (await ask("GET", f"{MAPS}/a")).body == before


async def test_strict_warn_and_ignore_treat_unknown_fields_as_asked(ask: DirectRequests) -> None:
    bad = {**config_map("a"), "nonsense": 1}
    strict = await ask("POST", f"{MAPS}?fieldValidation=Strict", bad)
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "nonsense"' in strict.message
    warned = await ask("POST", f"{MAPS}?fieldValidation=Warn", bad)
    assert warned.code == 201
    assert warned.headers["warning"] == '299 - "unknown field \\"nonsense\\""'
    assert "nonsense" not in warned.body
    ignored = await ask("POST", f"{MAPS}?fieldValidation=Ignore", {**bad, "metadata": {"name": "b"}})
    assert (ignored.code, "warning" in ignored.headers) == (201, False)


async def test_duplicate_fields_are_found_when_strict(ask: DirectRequests) -> None:
    text = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"d"},"data":{"a":"1","a":"2"}}'
    answer = await ask("POST", f"{MAPS}?fieldValidation=Strict", text)
    assert answer.code == 400
    assert 'duplicate field "data.a"' in answer.message


async def test_apply_creates_and_changes_and_needs_a_manager(ask: DirectRequests) -> None:
    missing = await ask("PATCH", f"{MAPS}/a", config_map("a"), media=APPLY_PATCH)
    assert (missing.code, missing.reason) == (422, "Invalid")
    assert (await ask("PATCH", f"{MAPS}/a?fieldManager=m", config_map("a"), media=APPLY_PATCH)).code == 201
    again = await ask("PATCH", f"{MAPS}/a?fieldManager=m", config_map("a", {"b": "2"}), media=APPLY_PATCH)
    assert (again.code, again.body["data"]) == (200, {"b": "2"})


async def test_apply_takes_yaml(ask: DirectRequests) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  when: 2026-01-01\n"
    answer = await ask("PATCH", f"{MAPS}/y?fieldManager=m", text, media=APPLY_PATCH)
    assert (answer.code, answer.body["data"]) == (201, {"when": "2026-01-01"})


async def test_put_creates_only_where_the_kind_allows_it(ask: DirectRequests) -> None:
    assert (await ask("PUT", f"{MAPS}/a", config_map("a"))).code == 404
    role = {"metadata": {"name": "r"}, "rules": []}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r"
    assert (await ask("PUT", path, role)).code == 201
    assert (await ask("PUT", path, role)).code == 200


async def test_secret_text_becomes_data(client: Client) -> None:
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
    made = await client.create(kinds.SECRETS, secret, namespace="default")
    assert made["data"] == {"a": "Yg=="}
    assert "stringData" not in made


async def test_services_get_an_address_of_their_own_and_keep_it(client: Client) -> None:
    ports = {"ports": [{"port": 80}]}
    one = await client.create(kinds.SERVICES, {"metadata": {"name": "a"}, "spec": ports}, namespace="default")
    two = await client.create(kinds.SERVICES, {"metadata": {"name": "b"}, "spec": ports}, namespace="default")
    assert one["spec"]["clusterIP"] != two["spec"]["clusterIP"]
    bare = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 81}]}}
    again = await client.replace(kinds.SERVICES, bare, namespace="default")
    assert again["spec"]["clusterIP"] == one["spec"]["clusterIP"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
async def test_pods_start_pending_with_their_quality_of_service(
    client: Client, resources: dict[str, Any], expected: str
) -> None:
    body = pod("p")
    body["spec"]["containers"][0]["resources"] = resources
    made = await client.create(kinds.PODS, {**body, "status": {"phase": "Running"}}, namespace="default")
    assert made["status"] == {"phase": "Pending", "qosClass": expected}


async def test_events_are_the_same_objects_in_both_groups(ask: DirectRequests) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R",
        "message": "m",
        "type": "Normal",
    }
    assert (await ask("POST", "/api/v1/namespaces/default/events", event)).code == 201
    other = (await ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")).body
    assert (other["apiVersion"], other["note"], other["regarding"]["name"]) == ("events.k8s.io/v1", "m", "p")
    listed = (await ask("GET", "/apis/events.k8s.io/v1/events")).body["items"]
    assert [each["note"] for each in listed] == ["m"]
