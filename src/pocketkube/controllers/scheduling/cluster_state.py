"""What the default scheduler knows: nodes, the pods on them, labels of namespaces.

A pod counts on its node as soon as it was decided. Pods may come before their node; they wait for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from apportion.apis.effective_resources import effective_resources
from apportion.apis.errors import InputError
from apportion.apis.noderules import HostPort, NodeRules, compile_rules
from apportion.apis.nodes import PODS, Node, Taint
from apportion.apis.pods import Pod

log = logging.getLogger(__name__)

ANY_ADDRESS = "0.0.0.0"  # of host ports that name none
K = TypeVar("K")


@dataclass(frozen=True)
class PodFacts:
    """A pod as the rules see it; `resources` has CPU in milli and everything else in whole units."""

    uid: str
    namespace: str
    labels: Mapping[str, str]
    resources: Mapping[str, int]
    rules: NodeRules
    owner: str  # uid of its controller, if it has one
    terminating: bool = False

    @classmethod
    def of(cls, pod: Pod) -> PodFacts:
        """Raises `InputError` for amounts that cannot be read."""
        meta = pod.metadata
        return cls(
            uid=meta.uid,
            namespace=meta.namespace,
            labels=meta.labels,
            resources=effective_resources(pod.spec),
            rules=compile_rules(pod),
            owner=meta.controller.uid if meta.controller else "",
            terminating=meta.deleting,
        )


@dataclass(frozen=True)
class NodeFacts:
    """A node's object as the rules see it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]

    @classmethod
    def of(cls, node: Node) -> NodeFacts:
        try:
            allocatable = node.allocatable()
        except InputError as error:
            log.error("node %s offers nothing: %s", node.metadata.name, error)  # noqa: TRY400
            allocatable = {}
        meta, spec = node.metadata, node.spec
        return cls(meta.name, meta.labels, tuple(spec.taints), spec.unschedulable, allocatable)


@dataclass
class NodeState:
    """A node and what its pods hold."""

    facts: NodeFacts
    pods: dict[str, PodFacts] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    ports: Counter[HostPort] = field(default_factory=Counter)
    port_numbers: Counter[tuple[str, int]] = field(default_factory=Counter)  # on any address

    @property
    def name(self) -> str:
        return self.facts.name

    def total(self, resource: str) -> int:
        return self.facts.allocatable.get(resource, 0)

    def free(self, resource: str) -> int:
        """What a new pod may take; negative when the node shrank below what it holds."""
        return self.total(resource) - (len(self.pods) if resource == PODS else self.used.get(resource, 0))

    def add(self, pod: PodFacts) -> None:
        self.pods[pod.uid] = pod
        for resource, amount in pod.resources.items():
            self.used[resource] = self.used.get(resource, 0) + amount
        for port in pod.rules.ports:
            self.ports[port] += 1
            self.port_numbers[port.protocol, port.port] += 1

    def remove(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        for resource, amount in pod.resources.items():
            self.used[resource] -= amount
        for port in pod.rules.ports:
            _release(self.ports, port)
            _release(self.port_numbers, (port.protocol, port.port))

    def clashes(self, wanted: HostPort) -> bool:
        """Whether a pod of this node holds a port on the same address, or on all of them."""
        if not self.port_numbers[wanted.protocol, wanted.port]:
            return False
        everywhere = HostPort(wanted.protocol, ANY_ADDRESS, wanted.port)
        return wanted.ip == ANY_ADDRESS or bool(self.ports[wanted] or self.ports[everywhere])


def _release(held: Counter[K], key: K) -> None:
    held[key] -= 1
    if not held[key]:
        del held[key]


class ClusterState:
    """All nodes with their pods. Iteration is in the order of node names."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.nodes: dict[str, NodeState] = {}
        self.pod_nodes: dict[str, str] = {}
        self.apart: set[str] = set()  # pods with required anti-affinity
        self._pods: dict[str, PodFacts] = {}
        self._by_node: dict[str, set[str]] = {}  # also of nodes that are not there
        self._sorted: list[NodeState] | None = None

    def __iter__(self) -> Iterator[NodeState]:
        if self._sorted is None:
            self._sorted = [self.nodes[name] for name in sorted(self.nodes)]
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self.nodes)

    def set_node(self, facts: NodeFacts) -> bool:
        """Whether anything is different from before."""
        known = self.nodes.get(facts.name)
        if known is not None:
            changed = known.facts != facts
            known.facts = facts
            return changed
        state = self.nodes[facts.name] = NodeState(facts)
        self._sorted = None
        for uid in self._by_node.get(facts.name, ()):
            state.add(self._pods[uid])
        return True

    def remove_node(self, name: str) -> None:
        """Pods that are still bound to it are remembered in case it comes back."""
        self.nodes.pop(name, None)
        self._sorted = None

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, None when it is gone. They matter for affinity across namespaces."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels

    def pod(self, uid: str) -> PodFacts | None:
        return self._pods.get(uid)

    def add_pod(self, pod: PodFacts, node: str) -> None:
        """A pod that is bound to a node, or will be."""
        self.remove_pod(pod.uid)
        self._pods[pod.uid] = pod
        self.pod_nodes[pod.uid] = node
        self._by_node.setdefault(node, set()).add(pod.uid)
        if pod.rules.anti_affinity:
            self.apart.add(pod.uid)
        if node in self.nodes:
            self.nodes[node].add(pod)

    def remove_pod(self, uid: str) -> None:
        if uid not in self._pods:
            return
        node = self.pod_nodes.pop(uid)
        del self._pods[uid]
        self.apart.discard(uid)
        self._by_node[node].discard(uid)
        if not self._by_node[node]:
            del self._by_node[node]
        if node in self.nodes:
            self.nodes[node].remove(uid)
