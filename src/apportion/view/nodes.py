"""Nodes as facts of the fleet."""

from __future__ import annotations

import logging

from apportion.apis.errors import InputError
from apportion.apis.identities import NodeName
from apportion.apis.nodes import Node
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet, NodeFacts
from apportion.view.accelerators import Accelerators
from apportion.view.change_log import ChangeLog
from apportion.view.sharing import device_slots

log = logging.getLogger(__name__)


def node_facts(node: Node) -> NodeFacts:
    """A node whose amounts cannot be read offers nothing, so that it takes nothing from the others."""
    try:
        allocatable = node.allocatable()
    except InputError as error:
        log.error("ignoring the resources of node %s: %s", node.metadata.name, error)  # noqa: TRY400
        allocatable = {}
    spec = node.spec
    return NodeFacts(
        NodeName(node.metadata.name), node.metadata.labels, tuple(spec.taints), spec.unschedulable, allocatable
    )


class Nodes:
    """Feeds nodes into the fleet."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, accelerators: Accelerators) -> None:
        self._fleet = fleet
        self._changes = changes
        self._accelerators = accelerators

    def changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            name = NodeName(old.metadata.name)
            self._fleet.remove_node(name)
            self._accelerators.node_removed(name)
            self._changes.note(Happened.NODE_CHANGED, name)
            return
        facts = node_facts(new)
        known = self._fleet.nodes.get(facts.name)
        if known is None or known.facts != facts:
            self._fleet.set_node(facts)
            self._changes.note(Happened.NODE_CHANGED, facts.name)
        self._accelerators.set_slots(facts.name, device_slots.of_node(new))
        self._accelerators.refresh(facts.name)
