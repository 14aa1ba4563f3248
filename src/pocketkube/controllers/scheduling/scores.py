"""Which of the nodes that fit the default scheduler takes: preferences, then room, then a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apportion.apis.taints import tolerated
from pocketkube.controllers.scheduling.cluster_state import NodeState, PodFacts

_COUNTED = ("cpu", "memory")


def best(nodes: Sequence[NodeState], pod: PodFacts, siblings: Mapping[tuple[str, str], int]) -> NodeState:
    """`siblings` counts pods by node and owner."""
    return min(nodes, key=lambda node: _cost(node, pod, siblings.get((node.name, pod.owner), 0)))


def _cost(node: NodeState, pod: PodFacts, siblings: int) -> tuple[int | str, ...]:
    """Smaller is better; the name makes every tie definite."""
    facts = node.facts
    avoided = sum(
        taint.effect == "PreferNoSchedule" and not tolerated(taint, pod.rules.tolerations) for taint in facts.taints
    )
    wished = sum(each.weight for each in pod.rules.preferred if each.preference.matches(facts.name, facts.labels))
    return avoided, -wished, siblings, _fullness(node, pod), len(node.pods), facts.name


def _fullness(node: NodeState, pod: PodFacts) -> int:
    """Used share of CPU and memory with this pod, in thousandths."""
    shares = []
    for resource in _COUNTED:
        total = node.total(resource)
        used = node.used.get(resource, 0) + pod.resources.get(resource, 0)
        shares.append(used * 1000 // total if total else 1000)
    return sum(shares) // len(shares)
