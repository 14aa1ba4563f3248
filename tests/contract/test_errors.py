"""Field validation and refusals: code, reason, message and causes are part of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, RawRequests, config_map, deployment, pod

JSON = dict[str, Any]


async def test_unknown_fields_are_refused_reported_or_ignored_as_asked(ask: RawRequests, maps: str) -> None:
    bad = {**config_map("a"), "nonsense": 1}
    strict = await ask("POST", maps, bad, fieldValidation="Strict")
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert strict.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "nonsense"'
    )
    warned = await ask("POST", maps, bad, fieldValidation="Warn")
    assert (warned.code, warned.warnings) == (201, ('299 - "unknown field \\"nonsense\\""',))
    assert "nonsense" not in warned.body
    ignored = await ask("POST", maps, {**bad, "metadata": {"name": "b"}}, fieldValidation="Ignore")
    assert (ignored.code, ignored.warnings) == (201, ())
    default = await ask("POST", maps, {**bad, "metadata": {"name": "c"}})
    assert len(default.warnings) == 1
    patched = await ask("PATCH", f"{maps}/a", {"nonsense": 1}, MERGE_PATCH, fieldValidation="Strict")
    assert (patched.code, patched.causes) == (422, [("FieldValueInvalid", "patch")])
    assert (await ask("POST", maps, bad, fieldValidation="Nonsense")).code == 422


async def test_nested_unknown_and_duplicate_fields_are_named(ask: RawRequests, pods: str) -> None:
    bad = pod("p")
    bad["spec"]["containers"][0]["nonsense"] = 1
    answer = await ask("POST", pods, bad, fieldValidation="Strict")
    assert 'unknown field "spec.containers[0].nonsense"' in answer.message
    twice = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","name":"q"},"spec":{"containers":[]}}'
    answer = await ask("POST", pods, twice, fieldValidation="Strict")
    assert 'duplicate field "metadata.name"' in answer.message


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"{", 400, "the object provided is unrecognized (must be of type ConfigMap)"),
        (b"[]", 400, "cannot unmarshal array into Go value"),
        (b"", 400, "the object provided is unrecognized"),
        (b"null", 422, "name or generateName is required"),
        ({"metadata": {}}, 422, "metadata.name: Required value: name or generateName is required"),
        (config_map("UPPER"), 422, "a lowercase RFC 1123 subdomain must consist of"),
        (config_map("a", namespace="other"), 400, "the namespace of the provided object does not match"),
        (config_map("a", labels={"a b": "c"}), 422, "metadata.labels: Invalid value"),
        (config_map("a", labels={"a": 5}), 400, "cannot unmarshal number into Go struct field"),
        ({**config_map("a"), "metadata": "x"}, 400, "cannot unmarshal string into Go struct field"),
        ({**config_map("a"), "kind": "Pod"}, 400, 'Pod in version "v1" cannot be handled as a ConfigMap'),
        ({**config_map("a"), "data": {"a/b": "c"}}, 422, "data[a/b]: Invalid value"),
    ],
)
async def test_bad_objects_are_refused_with_the_reason(
    ask: RawRequests, maps: str, body: Any, code: int, message: str
) -> None:
    answer = await ask("POST", maps, body)
    assert (answer.code, answer.body["kind"], answer.body["status"]) == (code, "Status", "Failure")
    assert message in answer.message


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"containers": []}, ("FieldValueRequired", "spec.containers")),
        ({"containers": [{"name": "C_", "image": "i"}]}, ("FieldValueInvalid", "spec.containers[0].name")),
        ({"containers": [{"name": "c"}]}, ("FieldValueRequired", "spec.containers[0].image")),
        ({"restartPolicy": "Sometimes"}, ("FieldValueNotSupported", "spec.restartPolicy")),
        (
            {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]},
            ("FieldValueInvalid", "spec.containers[0].resources.limits[nvidia.com/gpu]"),
        ),
        (
            {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
            ("FieldValueRequired", "spec.containers[0].resources.limits"),
        ),
        (
            {
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
                ]
            },
            ("FieldValueInvalid", "spec.containers[0].resources.requests"),
        ),
    ],
)
async def test_bad_pods_are_refused_by_field(ask: RawRequests, pods: str, spec: JSON, cause: tuple[str, str]) -> None:
    answer = await ask("POST", pods, pod("p", **spec))
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert cause in answer.causes
    assert answer.body["details"]["kind"] == "Pod"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"priorityClassName": "nope"}, "no PriorityClass with name nope was found"),
        ({"runtimeClassName": "nope"}, 'RuntimeClass "nope" not found'),
        ({"serviceAccountName": "nope"}, 'serviceaccount "nope" not found'),
    ],
)
async def test_pods_that_name_what_does_not_exist_are_forbidden(
    ask: RawRequests, pods: str, spec: JSON, message: str
) -> None:
    answer = await ask("POST", pods, pod("p", **spec))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert message in answer.message


async def test_immutable_fields_are_refused(ask: RawRequests, pods: str, deployments: str) -> None:
    await ask("POST", pods, pod("p"))
    answer = await ask("PATCH", f"{pods}/p", {"spec": {"nodeName": "x"}}, MERGE_PATCH)
    assert (answer.code, answer.causes) == (422, [("FieldValueForbidden", "spec")])
    assert answer.message.startswith(
        'Pod "p" is invalid: spec: Forbidden: pod updates may not change fields other than'
    )
    await ask("POST", deployments, deployment("d"))
    selector = {"spec": {"selector": {"matchLabels": {"x": "y"}}}}
    answer = await ask("PATCH", f"{deployments}/d", selector, MERGE_PATCH)
    assert (answer.code, ("FieldValueInvalid", "spec.selector") in answer.causes) == (422, True)


async def test_a_wrong_type_names_the_go_field(ask: RawRequests, deployments: str) -> None:
    answer = await ask("POST", deployments, deployment("d") | {"spec": {"replicas": "many"}})
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct '
        "field DeploymentSpec.spec.replicas of type int32"
    )


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/apps/v1/nonsense", 404),
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/x/status", 404),
        ("PATCH", "/api/v1/namespaces/default/configmaps", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("POST", "/api/v1/namespaces/default/configmaps/x", 405),
        ("DELETE", "/api/v1/namespaces", 405),
    ],
)
async def test_paths_and_methods_that_do_not_exist(ask: RawRequests, method: str, path: str, code: int) -> None:
    media = MERGE_PATCH if method == "PATCH" else "application/json"
    answer = await ask(method, path, {} if method in ("POST", "PUT", "PATCH") else None, media)
    assert answer.code == code
    assert answer.body["kind"] == "Status"
    assert answer.body["reason"] == {404: "NotFound", 405: "MethodNotAllowed"}[code]


async def test_a_missing_namespace_is_named(ask: RawRequests) -> None:
    answer = await ask("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("a"))
    assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')
    assert answer.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_other_media_types_are_refused(ask: RawRequests, maps: str) -> None:
    answer = await ask("POST", maps, b"x", "text/plain")
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")


async def test_yaml_is_accepted_and_returned(ask: RawRequests, maps: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata: {a: 'on'}\n"
    assert (await ask("POST", maps, text, "application/yaml")).body["data"] == {"a": "on"}
    spoken = await ask("GET", f"{maps}/yaml", accept="application/yaml")
    assert "kind: ConfigMap" in spoken.body
