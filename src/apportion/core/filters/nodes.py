"""Rules about the node itself: its name, cordon, taints, labels and host ports."""

from __future__ import annotations

from apportion.apis.noderules import HostPort
from apportion.apis.nodes import Taint
from apportion.apis.request import Request
from apportion.apis.taints import CORDON, tolerated, untolerated
from apportion.core.fleet_facts import NodeFacts
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason

ANY_ADDRESS = "0.0.0.0"


def against(node: NodeState, request: Request) -> Reason | None:
    if node.facts is None:
        return Reason(Code.WRONG_NODE)
    return against_facts(node.facts, request) or against_ports(node, request)


def against_facts(facts: NodeFacts, request: Request) -> Reason | None:
    """What the Node object alone decides."""
    rules = request.rules
    if request.node_name and request.node_name != facts.name:
        return Reason(Code.WRONG_NODE, request.node_name)
    if facts.unschedulable and not tolerated(CORDON, rules.tolerations):
        return Reason(Code.CORDONED)
    taint = untolerated(facts.taints, rules.tolerations)
    if taint is not None:
        return Reason(Code.TAINT, spelt(taint))
    return against_labels(facts, request)


def against_labels(facts: NodeFacts, request: Request) -> Reason | None:
    rules = request.rules
    for key, value in rules.selector:
        if facts.labels.get(key) != value:
            return Reason(Code.SELECTOR, f"{key}={value}")
    if rules.required is not None and not rules.required.matches(facts.name, facts.labels):
        return Reason(Code.AFFINITY)
    return None


def against_ports(node: NodeState, request: Request) -> Reason | None:
    for wanted in request.rules.ports:
        if any(_clash(wanted, held) for held in node.ports):
            return Reason(Code.PORTS, f"{wanted.port}/{wanted.protocol}")
    return None


def spelt(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _clash(wanted: HostPort, held: HostPort) -> bool:
    if wanted.port != held.port or wanted.protocol != held.protocol:
        return False
    return ANY_ADDRESS in {wanted.ip, held.ip} or wanted.ip == held.ip
