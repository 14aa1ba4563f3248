"""Which of the nodes that fit the default scheduler takes: preferences, then room, then a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apportion.apis.request import Request
from apportion.core.filters.nodes import tolerated
from apportion.core.node import NodeState

_COUNTED = ("cpu", "memory")


def best(nodes: Sequence[NodeState], request: Request, siblings: Mapping[tuple[str, str], int]) -> NodeState:
    """`siblings` counts pods by node and owner."""
    return min(nodes, key=lambda node: _cost(node, request, siblings.get((node.name, request.owner or ""), 0)))


def _cost(node: NodeState, request: Request, siblings: int) -> tuple[int | str, ...]:
    """Smaller is better; the name makes every tie definite."""
    facts = node.facts
    assert facts is not None
    avoided = sum(
        taint.effect == "PreferNoSchedule" and not tolerated(taint, request.rules.tolerations) for taint in facts.taints
    )
    wished = sum(each.weight for each in request.rules.preferred if each.preference.matches(facts.name, facts.labels))
    return avoided, -wished, siblings, _fullness(node, request), len(node.pods), facts.name


def _fullness(node: NodeState, request: Request) -> int:
    """Used share of CPU and memory with this pod, in thousandths."""
    assert node.facts is not None
    shares = []
    for resource in _COUNTED:
        total = node.facts.allocatable.get(resource, 0)
        used = node.used.get(resource, 0) + request.resources.get(resource, 0)
        shares.append(used * 1000 // total if total else 1000)
    return sum(shares) // len(shares)
