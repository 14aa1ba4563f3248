"""The nodes of a cluster: pools of nodes that are alike, and the node objects that they become.

Whoever adds facts to nodes (labels, annotations, capacity) extends `Pool` or changes the plans.
"""

from __future__ import annotations

from typing import Literal

import msgspec

HOSTNAME_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"


class Taint(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"

    def to_wire(self) -> dict[str, str]:
        made = {"key": self.key, "effect": self.effect}
        return made | {"value": self.value} if self.value else made


class NodePlan(msgspec.Struct, frozen=True):
    """One node to start."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    taints: list[dict[str, str]]
    capacity: dict[str, str]
    light: bool = False


class Pool(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Nodes that are alike. A light pool has no sockets and no child processes: for thousands of nodes."""

    name: str
    nodes: int = 1
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[Taint] = []
    zones: list[str] = []  # nodes take them in turn
    cpu: str = "64"
    memory: str = "256Gi"
    pods: int = 110
    resources: dict[str, str] = {}
    light: bool = False
    node_names: list[str] = []  # instead of numbers behind the pool's name

    def plans(self) -> list[NodePlan]:
        return [self.plan(index) for index in range(self.nodes)]

    def plan(self, index: int) -> NodePlan:
        name = self.node_names[index] if self.node_names else f"{self.name}-{index + 1}"
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            HOSTNAME_LABEL: name,
            "kubernetes.io/os": "linux",
        }
        if self.zones:
            labels[ZONE_LABEL] = self.zones[index % len(self.zones)]
        return NodePlan(
            name=name,
            labels=labels | self.extra_labels() | self.labels,
            annotations=_ANNOTATIONS | self.extra_annotations() | self.annotations,
            taints=[taint.to_wire() for taint in self.taints],
            capacity=self._base_capacity() | self.extra_capacity() | self.resources,
            light=self.light,
        )

    # For pools of other packages: facts that follow from their own fields. What the pool states itself wins.

    def extra_labels(self) -> dict[str, str]:
        return {}

    def extra_annotations(self) -> dict[str, str]:
        return {}

    def extra_capacity(self) -> dict[str, str]:
        return {}

    def _base_capacity(self) -> dict[str, str]:
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "pods": str(self.pods),
            "ephemeral-storage": "1Ti",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
        }


_ANNOTATIONS = {
    "node.alpha.kubernetes.io/ttl": "0",
    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
}
