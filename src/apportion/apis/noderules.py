"""What a pod demands of its node besides GPUs, compiled once from its spec.

Everything here is about where the pod may run; how much it asks for is in `request`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from apportion.apis.nodes import Taint
from apportion.apis.pods import (
    Container,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PreferredNode,
    SpreadConstraint,
    Toleration,
    WeightedPodAffinityTerm,
)
from apportion.apis.selectors import LabelSelector, NodeSelector, Requirement
from apportion.apis.taints import untolerated


class HostPort(msgspec.Struct, frozen=True, order=True):
    protocol: str
    ip: str
    port: int


class NodeRules(msgspec.Struct, frozen=True):
    """Where a pod may run and where it would rather run."""

    selector: tuple[tuple[str, str], ...] = ()
    required: NodeSelector | None = None
    preferred: tuple[PreferredNode, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    preferred_affinity: tuple[WeightedPodAffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedPodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    volume_claims: tuple[str, ...] = msgspec.field(default=(), name="claims")  # snapshots have the short name

    def selects(self, node: str, labels: Mapping[str, str]) -> bool:
        """Whether node selector and required node affinity let the pod run on a node of this name and labels."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        return self.required is None or self.required.matches(node, labels)

    def spreads_over(
        self, constraint: SpreadConstraint, node: str, labels: Mapping[str, str], taints: Iterable[Taint]
    ) -> bool:
        """Whether a node counts for a spread constraint of the pod, by the node policies of the constraint."""
        if constraint.node_affinity_policy == "Honor" and not self.selects(node, labels):
            return False
        return constraint.node_taints_policy != "Honor" or untolerated(taints, self.tolerations) is None

    @property
    def about_pods(self) -> bool:
        """True if the rules look at other pods, so that a decision about them changes the answer."""
        return bool(self.affinity or self.anti_affinity or self.spread)


def compile_rules(pod: Pod) -> NodeRules:
    spec = pod.spec
    affinity = spec.affinity
    node = affinity.node_affinity if affinity and affinity.node_affinity else NodeAffinity()
    near = affinity.pod_affinity if affinity and affinity.pod_affinity else PodAffinity()
    apart = affinity.pod_anti_affinity if affinity and affinity.pod_anti_affinity else PodAffinity()
    labels = pod.metadata.labels
    return NodeRules(
        selector=tuple(sorted(spec.node_selector.items())),
        required=node.required,
        preferred=node.preferred,
        tolerations=tuple(spec.tolerations),
        ports=_host_ports(pod),
        affinity=tuple(_with_label_keys(term, labels) for term in near.required),
        anti_affinity=tuple(_with_label_keys(term, labels) for term in apart.required),
        preferred_affinity=_weighted(near, labels),
        preferred_anti_affinity=_weighted(apart, labels),
        spread=tuple(_spread(constraint, labels) for constraint in spec.topology_spread_constraints),
        volume_claims=_volume_claims(pod),
    )


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Ports on the node's own addresses. Those of ordinary init containers do not count: they are gone when
    the pod serves (kube-scheduler sees it so too)."""
    users: list[Container] = [c for c in pod.spec.init_containers if c.sidecar] + pod.spec.containers
    ports = {
        HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port or port.container_port)
        for container in users
        for port in container.ports
        if port.host_port > 0 or (pod.spec.host_network and port.container_port > 0)
    }
    return tuple(sorted(ports))


def _volume_claims(pod: Pod) -> tuple[str, ...]:
    found: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(dict.fromkeys(found))


def _weighted(affinity: PodAffinity, labels: dict[str, str]) -> tuple[WeightedPodAffinityTerm, ...]:
    return tuple(
        WeightedPodAffinityTerm(
            weight=entry.weight, pod_affinity_term=_with_label_keys(entry.pod_affinity_term, labels)
        )
        for entry in affinity.preferred
    )


def _with_label_keys(term: PodAffinityTerm, labels: dict[str, str]) -> PodAffinityTerm:
    """An API server merges match and mismatch label keys into the selector; done again here it changes nothing."""
    if term.label_selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    extra = [Requirement(key=k, operator="In", values=(labels[k],)) for k in term.match_label_keys if k in labels]
    extra += [
        Requirement(key=k, operator="NotIn", values=(labels[k],)) for k in term.mismatch_label_keys if k in labels
    ]
    return msgspec.structs.replace(term, label_selector=_extended(term.label_selector, extra))


def _spread(constraint: SpreadConstraint, labels: dict[str, str]) -> SpreadConstraint:
    if constraint.label_selector is None or not constraint.match_label_keys:
        return constraint
    extra = [Requirement(key=k, operator="In", values=(labels[k],)) for k in constraint.match_label_keys if k in labels]
    return msgspec.structs.replace(constraint, label_selector=_extended(constraint.label_selector, extra))


def _extended(selector: LabelSelector, extra: list[Requirement]) -> LabelSelector:
    new = tuple(requirement for requirement in extra if requirement not in selector.match_expressions)
    return msgspec.structs.replace(selector, match_expressions=selector.match_expressions + new)
