"""Which nodes can take a pod, by kube-scheduler's rules and in its order: the node itself, resources, other pods.

Volumes are not judged: the volume controller binds claims wherever their pod runs. What concerns all nodes at once
is worked out once per pod in `Filters`.
"""

from __future__ import annotations

from collections.abc import Iterator

from apportion.apis.nodes import PODS
from apportion.apis.taints import CORDON, tolerated, untolerated
from pocketkube.controllers.scheduling import pod_affinity, topology_spread
from pocketkube.controllers.scheduling.cluster_state import ClusterState, NodeFacts, NodeState, PodFacts
from pocketkube.controllers.scheduling.refusals import Refusal

_NOT_NAMED = Refusal("node(s) didn't satisfy plugin(s) [NodeAffinity]")
_UNSCHEDULABLE = Refusal("node(s) were unschedulable")
_TAINTED = Refusal("node(s) had untolerated taint(s)")
_NOT_SELECTED = Refusal("node(s) didn't match Pod's node affinity/selector")
_PORTS = Refusal("node(s) didn't have free ports for the requested pod ports", preemption_helps=True)


class Filters:
    """All rules for one pod on the cluster as it is now."""

    def __init__(self, cluster: ClusterState, pod: PodFacts) -> None:
        self._pod = pod
        self._named = pod.rules.required.names() if pod.rules.required is not None else None
        self._spread = topology_spread.prepare(cluster, pod) if pod.rules.spread else ()
        self._neighbours = pod_affinity.prepare(cluster, pod)

    def against(self, node: NodeState) -> list[Refusal]:
        """What keeps the pod off this node: the first rule, but of resources all that are short."""
        refusal = self._node_itself(node)
        if refusal is not None:
            return [refusal]
        return list(_shortages(node, self._pod)) or self._other_pods(node.facts)

    def _node_itself(self, node: NodeState) -> Refusal | None:
        facts, rules = node.facts, self._pod.rules
        if self._named is not None and facts.name not in self._named:
            return _NOT_NAMED
        if facts.unschedulable and not tolerated(CORDON, rules.tolerations):
            return _UNSCHEDULABLE
        if untolerated(facts.taints, rules.tolerations) is not None:
            return _TAINTED
        if not rules.selects(facts.name, facts.labels):
            return _NOT_SELECTED
        return _PORTS if any(map(node.clashes, rules.ports)) else None

    def _other_pods(self, facts: NodeFacts) -> list[Refusal]:
        refusal = topology_spread.against(facts, self._spread)
        if refusal is None and self._neighbours is not None:
            refusal = pod_affinity.against(facts, self._pod, self._neighbours)
        return [] if refusal is None else [refusal]


def _shortages(node: NodeState, pod: PodFacts) -> Iterator[Refusal]:
    if node.free(PODS) < 1:
        yield Refusal("Too many pods", preemption_helps=node.total(PODS) >= 1)
    for resource, need in pod.resources.items():
        if need > node.free(resource):
            yield Refusal(f"Insufficient {resource}", preemption_helps=need <= node.total(resource))
