"""Pods: the fields that Apportion reads.

For reading only. Whoever changes a pod works on its JSON, so that fields unknown here survive.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.meta import FrozenWire, ObjectMeta, Wire
from apportion.apis.selectors import LabelSelector, NodeSelector, NodeSelectorTerm

Quantities = dict[str, str | int | float]

GONE_PHASES = ("Succeeded", "Failed")


class ResourceRequirements(Wire):
    requests: Quantities = {}
    limits: Quantities = {}


class EnvVar(Wire):
    name: str = ""
    value: str = ""


class ContainerPort(Wire):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Wire):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    env: list[EnvVar] = []
    ports: list[ContainerPort] = []
    restart_policy: str | None = None

    @property
    def sidecar(self) -> bool:
        """True for an init container that keeps running beside the others."""
        return self.restart_policy == "Always"


class Toleration(FrozenWire, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredNode(FrozenWire, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(FrozenWire, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNode, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(FrozenWire, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    def selects(
        self, namespace: str, labels: Mapping[str, str], *, owner: str, namespaces: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Whether the term of a pod in namespace `owner` selects a pod; `namespaces` are the labels of namespaces."""
        if self.label_selector is None:
            return False
        if not self.namespaces and self.namespace_selector is None:
            in_scope = namespace == owner
        else:
            selector = self.namespace_selector
            in_scope = namespace in self.namespaces or (
                selector is not None and selector.matches(namespaces.get(namespace, {}))
            )
        return in_scope and self.label_selector.matches(labels)


class WeightedPodAffinityTerm(FrozenWire, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(FrozenWire, frozen=True):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(FrozenWire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(FrozenWire, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels counts; as in kube-scheduler, an empty selector counts no pod."""
        selector = self.label_selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return False
        return selector.matches(labels)


class PersistentVolumeClaimSource(FrozenWire, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class EphemeralSource(FrozenWire, frozen=True):
    """A claim made for this pod alone; it is named after the pod and the volume."""


class Volume(FrozenWire, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class SchedulingGate(FrozenWire, frozen=True):
    name: str = ""


class PodSpec(Wire):
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_name: NodeName = NO_NODE
    restart_policy: str = "Always"
    scheduler_name: str = "default-scheduler"
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[SpreadConstraint] = []
    volumes: list[Volume] = []
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    scheduling_gates: list[SchedulingGate] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    host_network: bool = False
    service_account_name: str = ""


class PodCondition(Wire):
    type: str = ""
    status: str = "Unknown"
    reason: str = ""
    message: str = ""


class ContainerStateTerminated(Wire):
    exit_code: int = 0
    reason: str = ""
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerStateRunning(Wire):
    started_at: str | None = None


class ContainerStateWaiting(Wire):
    reason: str = ""
    message: str = ""


class ContainerState(Wire):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(Wire):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: str | None = None
    nominated_node_name: NodeName = NO_NODE
    conditions: list[PodCondition] = []
    init_container_statuses: list[ContainerStatus] = []
    container_statuses: list[ContainerStatus] = []


class Pod(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def uid(self) -> PodUID:
        return PodUID(self.metadata.uid)

    @property
    def terminal(self) -> bool:
        """True once every container has ended for good."""
        return self.status.phase in GONE_PHASES

    @property
    def ready(self) -> bool:
        return any(entry.type == "Ready" and entry.status == "True" for entry in self.status.conditions)
