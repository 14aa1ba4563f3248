"""Types as values of CEL: `type(object.spec.replicas) == int`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pocketkube.api.expressions.functions import Function, type_name


@dataclass(frozen=True, slots=True)
class TypeValue:
    name: str


NAMES = (
    *("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"),
    *("google.protobuf.Duration", "google.protobuf.Timestamp", "kubernetes.Quantity", "net.IP", "net.CIDR"),
)
BY_NAME = {name: TypeValue(name) for name in NAMES}


def _type(value: Any) -> TypeValue:
    return TypeValue("type" if isinstance(value, TypeValue) else type_name(value))


FUNCTIONS: dict[tuple[str, int], Function] = {("type", 1): _type}
