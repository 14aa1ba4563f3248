"""Whatever is sent: an answer with a Status, no traceback, no 500, and nothing written by accident."""

from __future__ import annotations

import pytest

from pocketkube.api import limits
from pocketkube.api.server import ApiServer
from tests.pocketkube.api.direct_requests import (
    APPLY_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    DirectRequests,
    config_map,
    pod,
)

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
async def test_paths_and_methods_that_do_not_exist(ask: DirectRequests, method: str, path: str, code: int) -> None:
    answer = await ask(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
    assert answer.code == code
    if code >= 400:
        assert answer.body["kind"] == "Status"
        assert answer.body["code"] == code


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"5", b"\xff\xfe", b"null", b"{}", b'{"metadata":5}'])
async def test_bodies_that_are_no_objects(ask: DirectRequests, body: bytes) -> None:
    answer = await ask("POST", MAPS, body)
    assert answer.code in (400, 422)
    assert answer.body["kind"] == "Status"


async def test_bodies_of_another_kind_or_form(ask: DirectRequests) -> None:
    wrong = await ask("POST", MAPS, pod("p"))
    assert (wrong.code, wrong.reason) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a ConfigMap' in wrong.message
    assert (await ask("POST", MAPS, config_map("a"), media="text/plain")).code == 415
    assert (await ask("POST", MAPS, b"\x00\x01", media="application/vnd.kubernetes.protobuf")).code in (400, 415)
    assert (await ask("PATCH", f"{MAPS}/a", {}, media="application/json")).code == 415
    other = await ask("POST", MAPS, config_map("a", namespace="other"))
    assert other.code == 400


async def test_a_body_that_is_too_large_is_refused(ask: DirectRequests) -> None:
    answer = await ask("POST", MAPS, b" " * (limits.MAX_BODY + 1))
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("depth", [600, 5_000, 200_000])
async def test_deep_nesting_is_refused(ask: DirectRequests, depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    body = b'{"metadata":{"name":"a"},"data":' + deep + b"}"
    assert (await ask("POST", MAPS, body)).code == 400
    await ask("POST", MAPS, config_map("a"))
    for media in (MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH):
        answer = await ask("PATCH", f"{MAPS}/a?fieldManager=m", body, media=media)
        assert answer.code == 400, media


async def test_yaml_that_grows_without_end_is_refused(ask: DirectRequests) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = "\n".join(["apiVersion: v1", "kind: ConfigMap", "metadata: {name: a}", *lines]).encode()
    assert (await ask("PATCH", f"{MAPS}/a?fieldManager=m", bomb, media=APPLY_PATCH)).code == 400
    assert (await ask("POST", MAPS, b"&a [*a]", media="application/yaml")).code == 400


async def test_callers_are_identified_and_judged(server: ApiServer) -> None:
    nobody = DirectRequests(server, None)
    assert (await nobody("GET", MAPS)).reason == "Forbidden"
    assert (await nobody("GET", MAPS, authorization="Bearer wrong")).reason == "Unauthorized"
    assert (await nobody("GET", MAPS, authorization="Bearer the-admin")).code == 200
    assert (await nobody("GET", "/healthz")).code == 200
    message = (await nobody("GET", MAPS)).message
    assert message == (
        'configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" '
        'in the namespace "default"'
    )
