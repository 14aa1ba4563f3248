"""Nodes that cannot serve slices without intervention, as reported by their agents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apportion.apis.custom_resources import accelerators
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.identities import NodeName
from apportion.apis.meta import condition

# Temporary states, or states that the pods of the DaemonSet report better
_TEMPORARY = ("Starting", "NotRegistered", "AgentStopped", "Waiting")


@dataclass(frozen=True)
class NodeProblem:
    """Why one node serves no slices."""

    node: NodeName
    reason: str
    message: str


def node_problems(found: Iterable[NodeAccelerator]) -> list[NodeProblem]:
    listed = []
    for entry in sorted(found, key=lambda entry: entry.metadata.name):
        ready = condition(entry.status.conditions, accelerators.READY)
        if ready is not None and ready.status != "True" and ready.reason not in _TEMPORARY:
            listed.append(NodeProblem(NodeName(entry.metadata.name), ready.reason, ready.message))
    return listed
