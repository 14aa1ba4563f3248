"""What may still change once a pod is there, and how a refusal shows the difference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, STRATEGIC_PATCH, RawRequests

FIXED = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
FIRST = "spec.ephemeralContainers[0]"
DEBUGGER = {"name": "debugger", "image": "busybox"}
NOT_HERE = "Forbidden: cannot be set for an Ephemeral Container"


@pytest.fixture
async def pod(ask: RawRequests, pods: str) -> str:
    """The path of a pod that no scheduler touches."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"schedulerName": "nobody", "tolerations": [{"key": "k", "operator": "Exists"}], "containers": [container]}
    assert (await ask("POST", pods, {"metadata": {"name": "fixed"}, "spec": spec})).code == 201
    return f"{pods}/fixed"


async def test_a_forbidden_change_is_shown_as_a_difference(ask: RawRequests, pod: str) -> None:
    changes = {"hostNetwork": True, "containers": [{"name": "c", "resources": {"requests": {"cpu": "300m"}}}]}
    answer = await ask("PATCH", pod, {"spec": changes}, STRATEGIC_PATCH)
    assert answer.code == 422
    [cause] = answer.body["details"]["causes"]
    assert cause["field"] == "spec"
    head, _, shown = cause["message"].partition("@@ ")
    assert head == FIXED
    assert '-     "cpu": "100m"\n+     "cpu": "300m"\n' in shown
    assert '  "SecurityContext": {\n-  "HostNetwork": false,\n+  "HostNetwork": true,\n' in shown
    # The lines count in the server's own form of a pod, and so the places of the changes are the same everywhere.
    assert [line for line in f"@@ {shown}".split("\n") if line.startswith("@@")] == [
        "@@ -102,7 +102,7 @@",
        "@@ -144,7 +144,7 @@",
    ]


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"activeDeadlineSeconds": 5}, []),
        ({"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}]}, ["tol"]),
        ({"containers": [{"name": "c", "image": "other"}]}, []),
        ({"containers": [{"name": "d", "image": "other"}]}, ["containers"]),
    ],
)
async def test_some_fields_may_change(ask: RawRequests, pod: str, changes: Any, causes: list[str]) -> None:
    answer = await ask("PATCH", pod, {"spec": changes}, STRATEGIC_PATCH)
    assert answer.code == (422 if causes else 200), answer.body
    fields = [cause["field"] for cause in answer.body["details"]["causes"]] if causes else []
    assert all(cause in field for cause, field in zip(causes, fields, strict=True)), fields


async def test_ephemeral_containers_come_through_their_own_endpoint_only(ask: RawRequests, pod: str, pods: str) -> None:
    added = {"spec": {"ephemeralContainers": [DEBUGGER]}}
    assert (await ask("PATCH", pod, added, STRATEGIC_PATCH)).causes == [("FieldValueForbidden", "spec")]
    whole = {"metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "b"}], **added["spec"]}}
    refused = await ask("POST", pods, whole)
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in refused.message
    made = await ask("PATCH", f"{pod}/ephemeralcontainers", added, STRATEGIC_PATCH)
    assert made.code == 200
    assert made.body["spec"]["ephemeralContainers"][0] | DEBUGGER == made.body["spec"]["ephemeralContainers"][0]
    assert made.meta["generation"] == 2
    assert made.meta["managedFields"][-1]["subresource"] == "ephemeralcontainers"


@pytest.mark.parametrize(
    ("container", "field", "message"),
    [
        ({"name": "c", "image": "b"}, f"{FIRST}.name", 'Duplicate value: "c"'),
        ({"name": "d"}, f"{FIRST}.image", "Required value"),
        ({"name": "d", "image": "b", "ports": [{"containerPort": 80}]}, f"{FIRST}.ports", NOT_HERE),
        ({"name": "d", "image": "b", "resources": {"limits": {"cpu": "1"}}}, f"{FIRST}.resources", NOT_HERE),
        ({"name": "d", "image": "b", "targetContainerName": "z"}, f"{FIRST}.targetContainerName", 'Not found: "z"'),
        (
            {"name": "d", "image": "b", "livenessProbe": {"exec": {"command": ["true"]}}},
            f"{FIRST}.livenessProbe",
            NOT_HERE,
        ),
    ],
)
async def test_an_ephemeral_container_has_no_part_in_the_workload(
    ask: RawRequests, pod: str, container: Any, field: str, message: str
) -> None:
    answer = await ask("PATCH", f"{pod}/ephemeralcontainers", added(container), STRATEGIC_PATCH)
    assert answer.code == 422
    [cause] = answer.body["details"]["causes"]
    assert (cause["field"], cause["message"]) == (field, message)


async def test_an_ephemeral_container_neither_changes_nor_goes(ask: RawRequests, pod: str) -> None:
    path = f"{pod}/ephemeralcontainers"
    assert (await ask("PATCH", path, added(DEBUGGER), STRATEGIC_PATCH)).code == 200
    changed = await ask("PATCH", path, added({"name": "debugger", "image": "other"}), STRATEGIC_PATCH)
    assert changed.body["details"]["causes"][0]["message"] == (
        'Forbidden: existing ephemeral containers "debugger" may not be changed\n@@ -1,6 +1,6 @@\n {\n  "Name": '
        '"debugger",\n- "Image": "busybox",\n+ "Image": "other",\n  "Command": null,\n  "Args": null,\n  "WorkingDir": '
        '"",\n'
    )
    removed = await ask("PATCH", path, {"spec": {"ephemeralContainers": None}}, MERGE_PATCH)
    assert removed.body["details"]["causes"][0]["message"] == (
        'Forbidden: existing ephemeral containers "debugger" may not be removed\n'
    )


async def test_resize_changes_amounts_and_nothing_else(ask: RawRequests, pod: str) -> None:
    async def resized(container: Any) -> Any:
        return await ask("PATCH", f"{pod}/resize", {"spec": {"containers": [{"name": "c", **container}]}}, MERGE_PATCH)

    more = await resized({"image": "ignored", "resources": {"requests": {"cpu": "200m"}}})
    assert more.code == 200
    assert more.body["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "200m"}}
    assert more.body["spec"]["containers"][0]["image"] == "busybox"
    removed = await resized({"resources": {"requests": {"memory": "1Gi"}}})
    assert "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed" in removed.message
    device = await resized({"resources": {"requests": {"cpu": "200m", "a.b/c": "1"}, "limits": {"a.b/c": "1"}}})
    assert "spec: Forbidden: only cpu and memory resources are mutable" in device.message
    promoted = await resized({"resources": {name: {"cpu": "1", "memory": "1Gi"} for name in ("requests", "limits")}})
    assert 'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing' in promoted.message
    refused = await ask("PATCH", pod, {"spec": {"containers": [{"name": "c", "resources": None}]}}, STRATEGIC_PATCH)
    assert refused.causes == [("FieldValueForbidden", "spec")]


def added(container: Any) -> Any:
    return {"spec": {"ephemeralContainers": [container]}}
