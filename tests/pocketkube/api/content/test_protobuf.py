"""Bodies in protobuf: what kubectl and Go clients send is read exactly; anything else is refused, never a crash."""

from __future__ import annotations

import base64
import http.client
import json
import struct
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pocketkube.api import status
from pocketkube.api.content import decoding, field_models, protobuf
from pocketkube.api.content.field_models import Field, Type
from pocketkube.api.registry import Registry, model_name
from tests.environments.control_plane import ControlPlane
from tests.pocketkube.api.content import accepted

Obj = dict[str, Any]
REGISTRY = Registry.builtin()


@pytest.mark.parametrize("name", sorted(accepted.CASES))
def test_what_is_written_is_read_again(name: str) -> None:
    version, plural, obj = accepted.CASES[name]
    group, _, short = version.rpartition("/")
    resource = REGISTRY.find(group, short, plural)
    assert resource is not None
    whole = {"apiVersion": version, "kind": resource.kind, **obj, "metadata": {"name": "x", "labels": {"a": "b"}}}
    kept, unknown = decoding.canonical(resource, whole)
    assert not unknown
    read, _ = decoding.canonical(resource, protobuf.decode(envelope(version, resource.kind, kept)))
    assert read == kept


def test_options_come_under_the_name_of_any_group() -> None:
    options = {"gracePeriodSeconds": 0, "propagationPolicy": "Foreground", "preconditions": {"uid": "u"}}
    body = envelope("policy/v1", "DeleteOptions", options, model="meta_v1.DeleteOptions")
    assert protobuf.decode(body) == {"apiVersion": "policy/v1", "kind": "DeleteOptions", **options}


def test_json_in_an_envelope() -> None:
    type_meta = message(1, b"v1") + message(2, b"ConfigMap")
    body = protobuf.MAGIC + message(1, type_meta) + message(2, b'{"data":{"a":"b"}}') + message(4, b"application/json")
    assert protobuf.decode(body) == {"data": {"a": "b"}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        protobuf.MAGIC,
        protobuf.MAGIC + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        protobuf.MAGIC + b"\x0a\x7f",
        protobuf.MAGIC + b"\x0b",
    ],
)
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(status.ApiStatus) as refusal:
        protobuf.decode(body)
    assert refusal.value.code == 400


def test_a_definition_must_be_json() -> None:
    with pytest.raises(status.ApiStatus) as refusal:
        protobuf.decode(envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", {}, model="core_v1.ConfigMap"))
    assert "send it as JSON" in refusal.value.message


@given(some.binary(max_size=400))
def test_any_bytes_are_an_object_or_a_refusal(noise: bytes) -> None:
    for body in (noise, protobuf.MAGIC + noise, envelope("v1", "Pod", {})[:-2] + noise):
        _read_or_refused(body)


@settings(max_examples=300)
@given(some.data())
def test_bent_objects_are_an_object_or_a_refusal(data: some.DataObject) -> None:
    name = data.draw(some.sampled_from(sorted(accepted.CASES)))
    version, plural, obj = accepted.CASES[name]
    resource = REGISTRY.find(*version.rpartition("/")[::2], plural)
    assert resource is not None
    body = bytearray(envelope(version, resource.kind, decoding.canonical(resource, dict(obj))[0]))
    for _ in range(data.draw(some.integers(1, 4))):
        body[data.draw(some.integers(4, len(body) - 1))] = data.draw(some.integers(0, 255))
    _read_or_refused(bytes(body))


@pytest.mark.real
def test_what_a_real_server_writes_is_read_as_its_json(control_plane: ControlPlane) -> None:
    paths = {
        "/api/v1/namespaces/default": ("", "v1", "namespaces"),
        "/api/v1/namespaces/default/serviceaccounts/default": ("", "v1", "serviceaccounts"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit": ("rbac.authorization.k8s.io", "v1", "clusterroles"),
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical": (
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
        ),
    }
    for path, place in paths.items():
        resource = REGISTRY.find(*place)
        assert resource is not None
        sent, shown = _both_forms(control_plane, path)
        assert decoding.canonical(resource, sent)[0] == decoding.canonical(resource, shown)[0]


def _both_forms(plane: ControlPlane, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """One state of an object in protobuf and in JSON; controllers may change it between the two requests."""
    for _ in range(20):
        sent, shown = protobuf.decode(_fetch(plane, path)), plane.api.get(path)
        if sent["metadata"]["resourceVersion"] == shown["metadata"]["resourceVersion"]:
            return sent, shown
    pytest.fail(f"{path} changes all the time")


def _fetch(plane: ControlPlane, path: str) -> bytes:
    connection: http.client.HTTPSConnection = plane.api._connection
    headers = {"authorization": f"Bearer {plane.api._user['token']}", "accept": "application/vnd.kubernetes.protobuf"}
    connection.close()  # one that was idle may have been closed at the other end
    connection.request("GET", path, None, headers)
    return connection.getresponse().read()


def _read_or_refused(body: bytes) -> None:
    with suppress(status.ApiStatus):
        assert isinstance(protobuf.decode(body), dict)


# A writer, for the tests alone


def envelope(version: str, kind: str, obj: Obj, *, model: str = "") -> bytes:
    type_meta = message(1, version.encode()) + message(2, kind.encode())
    return protobuf.MAGIC + message(1, type_meta) + message(2, written(model or model_name(version, kind), obj))


def written(model: str, obj: Obj) -> bytes:
    inline: dict[tuple[int, ...], bytes] = {}
    for name, value in obj.items():
        field = field_models.shape(model).fields[name]
        if name in ("apiVersion", "kind") and not field.numbers:
            continue
        inline[field.numbers[:-1]] = inline.get(field.numbers[:-1], b"") + _field(field, value)
    found = inline.pop((), b"")
    for numbers, body in sorted(inline.items()):
        for number in reversed(numbers):
            body = message(number, body)  # noqa: PLW2901  wrapped from the inside out
        found += body
    return found


def _field(field: Field, value: Any) -> bytes:
    number, kind = field.numbers[-1], field.type
    if kind.form == "list" and kind.of is not None:
        return b"".join(_value(number, kind.of, each) for each in value)
    if kind.form == "map" and kind.of is not None:
        pairs = ((key.encode(), each) for key, each in value.items())
        return b"".join(message(number, message(1, key) + _value(2, kind.of, each)) for key, each in pairs)
    return _value(number, kind, value)


def _value(number: int, kind: Type, value: Any) -> bytes:  # noqa: PLR0911  one return per form
    match kind.form:
        case "integer" | "long" | "boolean":
            return varint(number << 3) + varint(int(value))
        case "number":
            return varint(number << 3 | 1) + struct.pack("<d", value)
        case "struct":
            return message(number, written(kind.name, value))
        case "quantity":
            return message(number, message(1, value.encode()))
        case "bytes":
            return message(number, base64.b64decode(value))
        case "int-or-string":
            text = isinstance(value, str)
            body = varint(1 << 3) + varint(int(text))
            body += message(3, value.encode()) if text else varint(2 << 3) + varint(value)
            return message(number, body)
        case "time" | "micro-time":
            moment = datetime.fromisoformat(value)
            body = varint(1 << 3) + varint(int(moment.timestamp())) + varint(2 << 3) + varint(moment.microsecond * 1000)
            return message(number, body)
        case "any":
            return message(number, message(1, json.dumps(value).encode()))
        case _:
            return message(number, value.encode())


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
