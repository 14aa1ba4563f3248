"""Whether a node takes a pod that was bound to it: the last check, in a kubelet's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from apportion.apis.effective_resources import effective_resources
from apportion.apis.errors import RequestError
from apportion.apis.noderules import compile_rules
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.taints import tolerated

Json = Mapping[str, Any]
MOST_CONTAINERS = 500


@dataclass(frozen=True)
class Rejection:
    """Why a pod is refused; it becomes the pod's reason and message."""

    reason: str
    message: str


def unexpected(error: Exception) -> Rejection:
    return Rejection("UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")


def too_large(pod: Json) -> Rejection | None:
    """The status of a pod lists its containers, and has to fit into an object."""
    spec = pod["spec"]
    count = len(spec.get("initContainers") or ()) + len(spec["containers"])
    if count <= MOST_CONTAINERS:
        return None
    return Rejection("TooManyContainers", f"{count} containers: a node runs at most {MOST_CONTAINERS} in one pod")


def check(pod: Json, node: Json, others: Iterable[Json]) -> Rejection | None:
    """Selectors, taints, ports and resources, against the pods that the node already has."""
    if (rejection := too_large(pod)) is not None:
        return rejection
    wanted = msgspec.convert(pod, Pod, strict=False)
    here = msgspec.convert(node, Node, strict=False)
    neighbours = [msgspec.convert(other, Pod, strict=False) for other in others]
    return (
        _misplaced(wanted, here)
        or _tainted(wanted, here)
        or _blocked(wanted, neighbours)
        or _lacking(wanted, here, neighbours)
    )


def _misplaced(pod: Pod, node: Node) -> Rejection | None:
    if compile_rules(pod).selects(node.metadata.name, node.metadata.labels):
        return None
    text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    return Rejection("NodeAffinity", text)


def _tainted(pod: Pod, node: Node) -> Rejection | None:
    """Only NoExecute taints, which would evict the pod; the others are checked by the scheduler."""
    for taint in node.spec.taints:
        if taint.effect == "NoExecute" and not tolerated(taint, pod.spec.tolerations):
            text = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
            return Rejection("TaintToleration", text)
    return None


def _blocked(pod: Pod, neighbours: Iterable[Pod]) -> Rejection | None:
    taken = {port for other in neighbours for port in compile_rules(other).ports}
    if taken.isdisjoint(compile_rules(pod).ports):
        return None
    text = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    return Rejection("NodePorts", text)


def _lacking(pod: Pod, node: Node, neighbours: list[Pod]) -> Rejection | None:
    """Resources that the node does not have at all are let through: their plugin may not have come yet."""
    available = node.allocatable()
    if len(neighbours) + 1 > available.get("pods", 0):
        return _out_of("pods", 1, len(neighbours), available.get("pods", 0))
    wanted = _resources(pod)
    held: dict[str, int] = {}
    for other in neighbours:
        for name, amount in _resources(other).items():
            held[name] = held.get(name, 0) + amount
    for name, amount in wanted.items():
        if name in available and amount > available[name] - held.get(name, 0):
            return _out_of(name, amount, held.get(name, 0), available[name])
    return None


def _out_of(resource: str, wanted: int, used: int, capacity: int) -> Rejection:
    text = f"Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
    return Rejection(f"OutOf{resource}", text)


def _resources(pod: Pod) -> dict[str, int]:
    try:
        return effective_resources(pod.spec)
    except RequestError:  # admitted before; counted as nothing rather than stopping the node
        return {}
