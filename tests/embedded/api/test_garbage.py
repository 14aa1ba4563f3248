"""Whatever is sent: an answer with a Status, no traceback, no 500, and nothing written by accident."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.cluster.transport import Request
from apportion.embedded.api import negotiation
from apportion.embedded.api.attributes import ADMIN
from apportion.embedded.api.server import ApiServer
from tests.embedded.api.asking import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Asking, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nonsense", 404),
        ("GET", "/apis/nonsense/v1/things", 404),
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/api/v9/pods", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/pods/x", 404),
        ("GET", f"{MAPS}/x/status", 404),
        ("GET", f"{MAPS}/x/y/z", 404),
        ("GET", "//", 200),
        ("PATCH", MAPS, 405),
        ("PUT", MAPS, 405),
        ("POST", f"{MAPS}/x", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("OPTIONS", MAPS, 405),
        ("TRACE", "/version", 405),
        ("POST", "/version", 405),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
    ],
)
async def test_paths_and_methods_that_do_not_exist(ask: Asking, method: str, path: str, code: int) -> None:
    answer = await ask(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
    assert answer.code == code
    if code >= 400:
        assert answer.body["kind"] == "Status"
        assert answer.body["code"] == code


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"5", b"\xff\xfe", b"null", b"{}", b'{"metadata":5}'])
async def test_bodies_that_are_no_objects(ask: Asking, body: bytes) -> None:
    answer = await ask("POST", MAPS, body)
    assert answer.code in (400, 422)
    assert answer.body["kind"] == "Status"


async def test_bodies_of_another_kind_or_form(ask: Asking) -> None:
    wrong = await ask("POST", MAPS, pod("p"))
    assert (wrong.code, wrong.reason) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a ConfigMap' in wrong.message
    assert (await ask("POST", MAPS, config_map("a"), media="text/plain")).code == 415
    assert (await ask("POST", MAPS, b"\x00\x01", media="application/vnd.kubernetes.protobuf")).code in (400, 415)
    assert (await ask("PATCH", f"{MAPS}/a", {}, media="application/json")).code == 415
    other = await ask("POST", MAPS, config_map("a", namespace="other"))
    assert other.code == 400


async def test_a_body_that_is_too_large_is_refused(ask: Asking) -> None:
    answer = await ask("POST", MAPS, b" " * (negotiation.MAX_BODY + 1))
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("depth", [600, 5_000, 200_000])
async def test_deep_nesting_is_refused(ask: Asking, depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    body = b'{"metadata":{"name":"a"},"data":' + deep + b"}"
    assert (await ask("POST", MAPS, body)).code == 400
    await ask("POST", MAPS, config_map("a"))
    for media in (MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH):
        answer = await ask("PATCH", f"{MAPS}/a?fieldManager=m", body, media=media)
        assert answer.code == 400, media


async def test_yaml_that_grows_without_end_is_refused(ask: Asking) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = "\n".join(["apiVersion: v1", "kind: ConfigMap", "metadata: {name: a}", *lines]).encode()
    assert (await ask("PATCH", f"{MAPS}/a?fieldManager=m", bomb, media=APPLY_PATCH)).code == 400
    assert (await ask("POST", MAPS, b"&a [*a]", media="application/yaml")).code == 400


async def test_callers_are_identified_and_judged(server: ApiServer) -> None:
    nobody = Asking(server, None)
    assert (await nobody("GET", MAPS)).reason == "Forbidden"
    assert (await nobody("GET", MAPS, authorization="Bearer wrong")).reason == "Unauthorized"
    assert (await nobody("GET", MAPS, authorization="Bearer the-admin")).code == 200
    assert (await nobody("GET", "/healthz")).code == 200
    message = (await nobody("GET", MAPS)).message
    assert message == (
        'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" '
        'in the namespace "default"'
    )


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
        st.sampled_from(["metadata", "$patch", "replace", "delete", "1Gi", "2026-01-01T00:00:00Z", "a"]),
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["metadata", "name", "spec", "status", "data", "labels", "containers", "$patch", "$retainKeys", "op"]
            + ["path", "value", "replicas", "finalizers", "$setElementOrder/containers", "ownerReferences", "template"]
            + ["managedFields", "resources", "limits", "cpu", "selector", "kind", "apiVersion", "names", "versions"]
        )
        | st.text(max_size=5),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)
paths = st.sampled_from(
    [
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/services",
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/default/bindings",
    ]
)
suffixes = st.sampled_from(["", "/x", "/x/status", "/x/scale", "/x/binding", "/x/eviction", "/x/log", "/x/token"])
queries = st.dictionaries(
    st.sampled_from(
        ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "fieldManager", "dryRun", "force"]
        + ["fieldValidation", "propagationPolicy", "gracePeriodSeconds", "resourceVersionMatch", "tailLines"]
    ),
    st.text(max_size=6) | st.sampled_from(["1", "0", "All", "Strict", "a=b", "true"]),
    max_size=3,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    path=paths,
    suffix=suffixes,
    query=queries,
    media=st.sampled_from(["application/json", JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH, "application/yaml"]),
    body=values,
)
async def test_nothing_that_is_sent_makes_the_server_fail(
    server: ApiServer, method: str, path: str, suffix: str, query: dict[str, str], media: str, body: Any
) -> None:
    try:
        data = json.dumps(body).encode()
    except (ValueError, UnicodeEncodeError):
        return
    request = Request(method, path + suffix, tuple(query.items()), {"content-type": media}, data)
    response = await server.handle(request, ADMIN)
    assert response.status < 500 or response.status == 504, (response.status, response.body)
    if response.status >= 400:
        status = json.loads(response.body or b"")
        assert (status["kind"], status["code"]) == ("Status", response.status)
    if response.stream is not None:
        await response.stream.aclose()  # type: ignore[attr-defined]
