"""Media types: which form of the answer a client wants, and what the body it sent is written in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import yaml

from pocketkube.api import limits, status
from pocketkube.api.content import bounds, protobuf

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)

Form = Literal["object", "table", "metadata"]
_ALIASES: dict[str, Form] = {
    "Table": "table",
    "PartialObjectMetadata": "metadata",
    "PartialObjectMetadataList": "metadata",
}


@dataclass(frozen=True, slots=True)
class Accept:
    """The form of an answer: whole objects, a table, or only metadata; JSON or YAML."""

    form: Form = "object"
    media: str = JSON
    version: str = "v1"  # of meta.k8s.io, for tables and metadata


def accept(header: str, *, stream: bool = False) -> Accept:
    """The first of the client's choices that we can serve."""
    if not header.strip():
        return Accept()
    for choice in header.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        found = _media(media, stream=stream)
        if found is None:
            continue
        values = dict(part.partition("=")[::2] for part in parameters)
        if "as" in values:
            form = _ALIASES.get(values["as"])
            if form is None or values.get("g") != "meta.k8s.io" or values.get("v") not in ("v1", "v1beta1"):
                continue
            return Accept(form, found, values["v"])
        return Accept("object", found)
    raise status.not_acceptable(ACCEPTED)


def encode(answer: Any, media: str) -> bytes:
    if media == YAML:
        return yaml.dump(answer, Dumper=_Dumper, default_flow_style=False, sort_keys=True, allow_unicode=True).encode()
    return msgspec.json.encode(answer) + b"\n"


def media_of(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def decode_object(body: bytes | None, media: str, kind: str = "") -> dict[str, Any]:
    """The object in a request body, whatever it is written in."""
    if media not in ("", JSON, YAML, PROTOBUF):
        raise status.unsupported_media_type(ACCEPTED)
    if media == PROTOBUF:
        return protobuf.decode(body or b"")
    unrecognized = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
    try:
        value = decode_json(body or b"") if media != YAML else decode_yaml(body or b"")
    except status.ApiStatus as problem:
        if problem.code != 400:  # noqa: PLR2004  too large
            raise
        raise status.bad_request(f"{unrecognized}json parse error: {problem.message}") from problem
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise status.bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal "
            f'{json_type(value)} into Go value of type struct {{ APIVersion string "json:\\"apiVersion,omitempty\\""; '
            'Kind string "json:\\"kind,omitempty\\"" }'
        )
    return value


def decode_json(body: bytes) -> Any:
    bounds.check_count(body)
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise status.bad_request(str(error)) from error
    except RecursionError as error:
        raise status.bad_request("exceeded max depth") from error
    bounds.check_depth(value)
    return value


def decode_yaml(body: bytes) -> Any:
    """YAML as Kubernetes reads it: plain data, string keys, no dates."""
    if body[:1] == b"{":
        with suppress(status.ApiStatus):
            return decode_json(body)
    try:
        _check_yaml(body)
        value = yaml.load(body, Loader=_Loader)  # noqa: S506  a safe loader without timestamps
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise status.bad_request(f"error converting YAML to JSON: yaml: {text}") from error
    except RecursionError as error:
        raise status.bad_request("error converting YAML to JSON: yaml: exceeded max depth") from error
    if _weight(value, {}) > limits.MAX_VALUES:
        raise status.bad_request("error converting YAML to JSON: yaml: document contains excessive aliasing")
    bounds.check_depth(value)
    return _with_string_keys(value)


def duplicate_fields(body: bytes) -> list[str]:
    """Paths of names that occur more than once in one JSON object, the first few; empty for what is no JSON."""
    try:
        document = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    found: dict[str, None] = {}
    _find_duplicates(document, "", found)
    return list(found)


def _check_yaml(body: bytes) -> None:
    """Before anything is built: the C loader recurses without looking at the end of the stack."""
    depth = 0
    for count, event in enumerate(yaml.parse(body, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > limits.MAX_DEPTH:
            raise status.bad_request("error converting YAML to JSON: yaml: exceeded max depth")
        if count > limits.MAX_VALUES:
            raise status.too_many_values(limits.MAX_VALUES)


def _weight(value: Any, known: dict[int, int]) -> int:
    """How many values a document has once its aliases are written out."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = limits.MAX_VALUES + 1  # until it is counted: whatever contains itself has no end
        children = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_weight(child, known) for child in children)
    return known[id(value)]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its names as they stand there."""


def _find_duplicates(value: Any, path: str, found: dict[str, None]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, inner in value:
            if len(found) >= limits.MAX_STRICT_ERRORS:
                return
            here = f"{path}.{name}" if path else name
            if name in seen:
                found[here] = None
            seen.add(name)
            _find_duplicates(inner, here, found)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _find_duplicates(inner, f"{path}[{index}]", found)


def _media(media: str, *, stream: bool) -> str | None:
    if media in ("*/*", "application/*", "", JSON):
        return JSON
    if media == YAML and not stream:
        return YAML
    return None


def json_type(value: object) -> str:
    """What Go's decoder calls the type of a JSON value."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else "bool"


def _with_string_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _with_string_keys(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_string_keys(each) for each in value]
    return value


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, (str, int, float)):
        return str(key)
    raise status.bad_request(f"error converting YAML to JSON: yaml: invalid map key: {key!r}")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    pass


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    pass


# Timestamps stay text, as JSON has no dates.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
