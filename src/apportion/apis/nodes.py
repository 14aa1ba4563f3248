"""Nodes: the fields that Apportion reads."""

from __future__ import annotations

import msgspec

from apportion.apis import quantity
from apportion.apis.meta import FrozenWire, ObjectMeta, Wire

CPU = "cpu"
PODS = "pods"


class Taint(FrozenWire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: list[Taint] = []
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(Wire):
    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class NodeAddress(Wire):
    type: str = ""
    address: str = ""


class NodeStatus(Wire):
    capacity: dict[str, str | int | float] = {}
    allocatable: dict[str, str | int | float] = {}
    conditions: list[NodeCondition] = []
    addresses: list[NodeAddress] = []


class Node(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        return any(entry.type == "Ready" and entry.status == "True" for entry in self.status.conditions)

    def allocatable(self) -> dict[str, int]:
        """What pods may use, in ledger units: CPU in milli, everything else in whole units."""
        amounts = self.status.allocatable
        return {name: quantity.milli(text) if name == CPU else quantity.whole(text) for name, text in amounts.items()}
