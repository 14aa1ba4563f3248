"""Request bodies in Kubernetes' protobuf, read into the JSON form of the object.

Clients written in Go may send built-in kinds this way, kubectl does so for several commands, and they do
not try again in JSON. A body is a magic number and an envelope that names the kind; the field numbers of
the kinds come from the models. Answers are always JSON, which every client accepts.
"""

from __future__ import annotations

import base64
import functools
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from pocketkube.api import limits, status
from pocketkube.api.content import bounds, field_models
from pocketkube.api.content.field_models import Field, Type
from pocketkube.api.registry import model_name

MAGIC = b"k8s\x00"

# Options of a verb may come under the name of any group.
_OPTIONS = {"CreateOptions", "DeleteOptions", "PatchOptions", "UpdateOptions"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class WireError(ValueError):
    """Bytes that are no protobuf message, or not one of the kind they claim to be."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body; a 400 Status if the body cannot be read."""
    try:
        return _Decoder().object(body)
    except WireError as problem:
        raise status.bad_request(f"unable to decode the protobuf body: {problem}") from None


class _Decoder:
    """Reads one body; the number of its fields is bounded, since two bytes can be a message."""

    def __init__(self) -> None:
        self._left = limits.MAX_VALUES

    def object(self, body: bytes) -> dict[str, Any]:
        if not body.startswith(MAGIC):
            raise WireError("it does not begin with the Kubernetes magic number")
        envelope = self._message(body[len(MAGIC) :])
        type_meta = self._message(_last_bytes(envelope, 1))
        api_version, kind = _text(_last_bytes(type_meta, 1)), _text(_last_bytes(type_meta, 2))
        if encoding := _last_bytes(envelope, 3):
            raise WireError(f"its content encoding {_text(encoding)!r} is not supported")
        raw = _last_bytes(envelope, 2)
        if _last_bytes(envelope, 4) == b"application/json":
            return _as_object(raw)
        model = "meta_v1." + kind if kind in _OPTIONS else model_name(api_version, kind)
        if not field_models.exists(model) or model.startswith("apiextensions_"):
            raise WireError(f'kind "{kind}" in version "{api_version}" is not known in this form; send it as JSON')
        return {"kind": kind, "apiVersion": api_version, **self._struct(model, raw)}

    def _struct(self, model: str, data: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._fill(found, _layout(model), data)
        return found

    def _fill(self, found: dict[str, Any], layout: dict[int, Any], data: bytes) -> None:
        for number, value in self._wire(data):
            place = layout.get(number)
            if isinstance(place, dict):
                self._fill(found, place, _must_be_bytes(value))
            elif isinstance(place, Field):
                self._add(found, place, value)

    def _add(self, found: dict[str, Any], field: Field, value: int | bytes) -> None:
        kind = field.type
        if kind.form == "list" and kind.of is not None:
            found.setdefault(field.name, []).extend(self._items(kind.of, value))
        elif kind.form == "map" and kind.of is not None:
            key, item = self._entry(kind.of, _must_be_bytes(value))
            found.setdefault(field.name, {})[key] = item
        else:
            read = self._value(kind, value)
            if read is not None:
                found[field.name] = read

    def _items(self, kind: Type, value: int | bytes) -> list[Any]:
        if kind.form in ("integer", "long") and isinstance(value, bytes):  # packed
            items, at = [], 0
            while at < len(value):
                self._count()
                number, at = _varint(value, at)
                items.append(_signed(number))
            return items
        return [self._value(kind, value)]

    def _entry(self, kind: Type, data: bytes) -> tuple[str, Any]:
        key = ""
        item: Any = None
        items: list[Any] = []
        for number, value in self._wire(data):
            if number == 1:
                key = _text(_must_be_bytes(value))
            elif number == 2 and kind.form == "list" and kind.of is not None:  # noqa: PLR2004  the value's number
                for inner, each in self._wire(_must_be_bytes(value)):
                    items += self._items(kind.of, each) if inner == 1 else []
            elif number == 2:  # noqa: PLR2004
                item = self._value(kind, value)
        return key, items if kind.form == "list" else item

    def _value(self, kind: Type, value: int | bytes) -> Any:  # noqa: PLR0911  one case per form
        match kind.form:
            case "integer" | "long":
                return _signed(_must_be_int(value))
            case "boolean":
                return bool(_must_be_int(value))
            case "number":
                return struct.unpack("<d", _must_be_int(value).to_bytes(8, "little"))[0]
            case "string":
                return _text(_must_be_bytes(value))
            case "bytes":
                return base64.b64encode(_must_be_bytes(value)).decode()
            case "struct":
                return self._struct(kind.name, _must_be_bytes(value))
            case "quantity":
                return _text(_last_bytes(self._message(_must_be_bytes(value)), 1)) or "0"
            case "time" | "micro-time":
                return _time(self._message(_must_be_bytes(value)), micro=kind.form == "micro-time")
            case "int-or-string":
                return _int_or_string(self._message(_must_be_bytes(value)))
            case _:
                raw = _last_bytes(self._message(_must_be_bytes(value)), 1)
                return _as_json(raw) if raw else None

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise status.too_many_values(limits.MAX_VALUES)

    def _message(self, data: bytes) -> dict[int, list[int | bytes]]:
        found: dict[int, list[int | bytes]] = {}
        for number, value in self._wire(data):
            found.setdefault(number, []).append(value)
        return found

    def _wire(self, data: bytes) -> Iterator[tuple[int, int | bytes]]:
        """Field numbers with their values: an int for numbers of any width, bytes for everything else."""
        at = 0
        while at < len(data):
            self._count()
            tag, at = _varint(data, at)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _VARINT:
                value, at = _varint(data, at)
                yield number, value
                continue
            if wire_type == _BYTES:
                size, at = _varint(data, at)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise WireError(f"wire type {wire_type} is not in use")
            if at + size > len(data):
                raise WireError("it ends in the middle of a field")
            piece = data[at : at + size]
            at += size
            yield number, piece if wire_type == _BYTES else int.from_bytes(piece, "little")


@functools.cache
def _layout(model: str) -> dict[int, Any]:
    """Field number to the field, or to the layout of a message that JSON shows inline."""
    layout: dict[int, Any] = {}
    for field in field_models.shape(model).fields.values():
        place = layout
        for number in field.numbers[:-1]:
            place = place.setdefault(number, {})
        if field.numbers:
            place[field.numbers[-1]] = field
    return layout


def _time(message: dict[int, list[int | bytes]], *, micro: bool) -> str | None:
    if not message:
        return None
    seconds = _signed(_last_int(message, 1))
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise WireError(f"a time of {seconds} seconds is out of range") from None
    if not micro:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{_signed(_last_int(message, 2)) // 1000 % 10**6:06d}Z"


def _int_or_string(message: dict[int, list[int | bytes]]) -> int | str:
    if _last_int(message, 1) == 1:
        return _text(_last_bytes(message, 3))
    return _signed(_last_int(message, 2))


def _as_object(raw: bytes) -> dict[str, Any]:
    found = _as_json(raw)
    if not isinstance(found, dict):
        raise WireError("the object in it is not a JSON object")
    return found


def _as_json(raw: bytes) -> Any:
    bounds.check_count(raw)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise WireError("an embedded object is not JSON") from None
    bounds.check_depth(value)
    return value


# The wire format


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        if at >= len(data):
            raise WireError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # noqa: PLR2004  the last byte of a number has no high bit
            return value & (2**64 - 1), at
    raise WireError("a number is longer than 64 bits")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _must_be_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise WireError("a number stands where a message or text belongs")
    return value


def _must_be_int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise WireError("text stands where a number belongs")
    return value


def _last_bytes(message: dict[int, list[int | bytes]], number: int) -> bytes:
    return _must_be_bytes(message[number][-1]) if number in message else b""


def _last_int(message: dict[int, list[int | bytes]], number: int) -> int:
    return _must_be_int(message[number][-1]) if number in message else 0


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WireError("a text is not UTF-8") from None
