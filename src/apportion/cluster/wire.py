"""Bodies and objects as they cross the wire: encoding, decoding, and the metadata of either form.

An object is a plain dict or a msgspec Struct with a `metadata` field; callers choose by passing a type.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from apportion.apis import meta
from apportion.apis.kinds import Kind

JSON = dict[str, Any]
Body = Mapping[str, Any] | msgspec.Struct
T = TypeVar("T")

log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """What identifies an object, and a version of it."""

    namespace: str
    name: str
    uid: str
    resource_version: str


class ListMeta(meta.Wire):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class RawList(meta.Wire):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None


class RawEvent(meta.Wire):
    type: str
    object: msgspec.Raw


def identify(obj: Any) -> Identity:
    if isinstance(obj, dict):
        data = obj.get("metadata") or {}
        return Identity(
            data.get("namespace") or "",
            data.get("name") or "",
            data.get("uid") or "",
            data.get("resourceVersion") or "",
        )
    data = obj.metadata
    return Identity(data.namespace, data.name, data.uid, data.resource_version)


def encode(body: Body, kind: Kind | None = None) -> bytes:
    """JSON of a body; `kind` supplies apiVersion and kind where the body has none."""
    if isinstance(body, msgspec.Struct):
        body = msgspec.to_builtins(body)
        assert isinstance(body, dict)
    if kind is not None and "kind" not in body:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    return msgspec.json.encode(body)


def decode(data: bytes | msgspec.Raw | None, into: type[T]) -> T:
    result: T = _decoder(into).decode(data or b"{}")
    return result


def decode_items(data: bytes, into: type[T], kind: Kind) -> tuple[list[T], ListMeta]:
    """The items of a list; one that does not match `into` is reported and left out, the others count."""
    listing = _decoder(RawList).decode(data)
    items: list[T] = []
    for raw in listing.items or ():
        try:
            item = decode(raw, into)
        except msgspec.ValidationError as error:
            log.error("ignoring invalid object %s: %s", describe(raw, kind), error)  # noqa: TRY400
            continue
        if isinstance(item, dict):  # servers leave these out of list items
            item.setdefault("apiVersion", kind.api_version)
            item.setdefault("kind", kind.kind)
        items.append(item)
    return items, listing.metadata


def describe(raw: msgspec.Raw | bytes, kind: Kind) -> str:
    try:
        identity = identify(decode(raw, meta.Bare))
    except msgspec.DecodeError:
        return kind.kind
    return f"{kind.kind} {identity.namespace}/{identity.name}".replace(" /", " ")


def _decoder(into: type[Any]) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(into)
    if found is None:
        found = _decoders[into] = msgspec.json.Decoder(into)
    return found


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
