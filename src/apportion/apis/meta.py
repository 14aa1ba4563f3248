"""Object metadata as every Kubernetes object carries it: only the fields that we read.

The Structs ignore fields they do not know, so they are for reading; code that must keep foreign fields
(an update of an object of another program) uses plain dicts or sends a patch.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Base of wire objects: camelCase on the wire, empty fields left out."""


class FrozenWire(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """The same for values that are shared and compared."""


class OwnerReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(Wire, omit_defaults=False):
    """A condition in the form that Kubernetes recommends for custom resources."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


Conditions = Annotated[
    list[Condition],
    msgspec.Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class Bare(Wire):
    """Any object of which only the metadata matters."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


def condition(conditions: list[Condition], kind: str) -> Condition | None:
    return next((entry for entry in conditions if entry.type == kind), None)


def to_wire(obj: msgspec.Struct) -> dict[str, Any]:
    """The plain JSON form of a Struct, as clients send it."""
    result: dict[str, Any] = msgspec.to_builtins(obj)
    return result
