"""Structural schemas out of Structs."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from apportion.apis.custom_resources import schema
from apportion.apis.meta import Conditions, Wire


class Inner(Wire):
    """An inner thing."""

    some_number: Annotated[int, Meta(ge=0, le=9, description="A digit.")]
    ratio: float = 0.0
    exact: Decimal = Decimal(0)


class Outer(Wire, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=5, pattern="^a")]
    inner: Inner | None = None
    many: list[Inner] = []
    labels: dict[str, str] = {}
    anything: dict[str, Any] = {}
    mode: Annotated[Literal["on", "off"], Meta(extra_json_schema={"default": "off"})] = "off"
    flag: bool = False
    conditions: Conditions = []


def test_every_kind_of_field_has_its_schema() -> None:
    made = schema.structural(Outer)
    inner = {
        "type": "object",
        "description": "An inner thing.",
        "properties": {
            "someNumber": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "maximum": 9,
                "description": "A digit.",
            },
            "ratio": {"type": "number"},
            "exact": {"type": "number"},
        },
        "required": ["someNumber"],
    }
    properties = made["properties"]
    assert made["required"] == ["name"]
    assert properties["name"] == {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a"}
    assert properties["inner"] == inner
    assert properties["many"] == {"type": "array", "items": inner}
    assert properties["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert properties["anything"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert properties["mode"] == {"type": "string", "enum": ["off", "on"], "default": "off"}
    assert properties["flag"] == {"type": "boolean"}
    assert properties["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_what_a_structural_schema_cannot_say_is_refused() -> None:
    class Union(Wire):
        either: int | str = 0

    class Bytes(msgspec.Struct):
        raw: bytes = b""

    with pytest.raises(TypeError, match="unions"):
        schema.structural(Union)
    with pytest.raises(TypeError, match="BytesType"):
        schema.structural(Bytes)
