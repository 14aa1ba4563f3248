"""Changes after which a rule no longer excludes a pod: of the pod's own rule, or of the state of a node.

Each returns the request without the rule, or changes the fleet and returns the request as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from apportion.apis import names
from apportion.apis.identities import NodeName
from apportion.apis.pods import Toleration
from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts


class Relaxation(NamedTuple):
    """`words` name the change, with {subject} and {node}; `of_node` if it changes one node, not the pod."""

    words: str
    apply: Callable[[Fleet, Request, str, NodeName], Request]  # fleet, request, subject, node
    of_node: bool = False


def uncordoned(fleet: Fleet, request: Request, _subject: str, node: NodeName) -> Request:
    fleet.set_node(dataclasses.replace(_facts(fleet, node), unschedulable=False))
    return request


def agent_ready(fleet: Fleet, request: Request, _subject: str, node: NodeName) -> Request:
    fleet.set_gpus(node, [gpu.facts for gpu in fleet.nodes[node].gpus.values()], ready=True)
    return request


def mig_capable(fleet: Fleet, request: Request, _subject: str, node: NodeName) -> Request:
    facts = _facts(fleet, node)
    fleet.set_node(dataclasses.replace(facts, labels={**facts.labels, names.MIG_CAPABLE_LABEL: "true"}))
    return request


def tolerating(_fleet: Fleet, request: Request, subject: str, _node: NodeName) -> Request:
    key = subject.split(":", 1)[0].split("=", 1)[0]
    return _with(request, tolerations=(*request.rules.tolerations, Toleration(key=key, operator="Exists")))


def without_selector(_fleet: Fleet, request: Request, subject: str, _node: NodeName) -> Request:
    rest = tuple((key, value) for key, value in request.rules.selector if f"{key}={value}" != subject)
    return _with(request, selector=rest)


def without_node_affinity(_fleet: Fleet, request: Request, _subject: str, _node: NodeName) -> Request:
    return _with(request, required=None)


def without_port(_fleet: Fleet, request: Request, subject: str, _node: NodeName) -> Request:
    rest = tuple(port for port in request.rules.ports if f"{port.port}/{port.protocol}" != subject)
    return _with(request, ports=rest)


def without_affinity(_fleet: Fleet, request: Request, _subject: str, _node: NodeName) -> Request:
    return _with(request, affinity=())


def without_anti_affinity(_fleet: Fleet, request: Request, _subject: str, _node: NodeName) -> Request:
    return _with(request, anti_affinity=())


def without_spread(_fleet: Fleet, request: Request, _subject: str, _node: NodeName) -> Request:
    return _with(request, spread=())


def _with(request: Request, **rules: object) -> Request:
    return msgspec.structs.replace(request, rules=msgspec.structs.replace(request.rules, **rules))


def _facts(fleet: Fleet, node: NodeName) -> NodeFacts:
    facts = fleet.nodes[node].facts
    assert facts is not None
    return facts
