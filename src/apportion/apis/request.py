"""What a pod asks for, read once.

`parse_pod` turns the wire form into a `Request`; no other code reads annotations, limits or init
containers. Amounts are integers: CPU in milli, memory in bytes, GPU memory in MiB, shares in milli-GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from apportion.apis import names, priorities
from apportion.apis.effective_resources import effective_resources
from apportion.apis.errors import RequestError
from apportion.apis.identities import NO_NODE, NodeName, PodUID, QueueName
from apportion.apis.noderules import NodeRules, compile_rules
from apportion.apis.pods import Pod
from apportion.apis.shares import Share, read_share
from apportion.apis.slice_requests import SliceRequest, read_slices

__all__ = ["POLICIES", "Request", "RequestError", "Share", "SliceRequest", "parse_pod"]

DEFAULT_QUEUE = QueueName("default-queue")

POLICIES = ("fragmentation", "pack", "spread", "first-fit", "best-fit")


class Request(msgspec.Struct, frozen=True):
    """One pod as the deciding code sees it."""

    uid: PodUID
    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    scheduler_name: str = names.DEFAULT_SCHEDULER
    node_name: NodeName = NO_NODE
    priority: int = 0
    priority_class: str = ""
    queue: QueueName = DEFAULT_QUEUE
    group: str | None = None  # the name of its PodGroup
    subgroup: str = ""
    preemptibility: str = ""
    policy: str | None = None
    whole_gpus: int = 0
    share: Share | None = None
    slices: tuple[SliceRequest, ...] = ()
    resources: Mapping[str, int] = {}
    rules: NodeRules = NodeRules()
    gates: tuple[str, ...] = ()
    created: str = ""
    owner: str | None = None
    terminating: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def group_key(self) -> str:
        """Equal for pods of one group. A pod without one is a group of its own."""
        return f"{self.namespace}/{self.group}" if self.group is not None else self.uid

    @property
    def effective_priority(self) -> int:
        return self.priority if self.priority or self.priority_class else priorities.DEFAULT_PRIORITY

    @property
    def preemptible(self) -> bool:
        return priorities.is_preemptible(self.effective_priority, self.preemptibility)

    @property
    def has_volume_claims(self) -> bool:
        return bool(self.rules.volume_claims or self.rules.ephemeral)

    @property
    def volume_claims(self) -> tuple[str, ...]:
        """The names of its PersistentVolumeClaims. Those of ephemeral volumes are no part of its rules, so that pods
        which differ in nothing but their names have the same rules."""
        rules = self.rules
        if not rules.ephemeral:
            return rules.volume_claims
        return tuple(dict.fromkeys((*rules.volume_claims, *(f"{self.name}-{volume}" for volume in rules.ephemeral))))

    @property
    def gated(self) -> bool:
        return bool(self.gates)

    @property
    def wants_gpu(self) -> bool:
        return bool(self.slices or self.share or self.whole_gpus)


def parse_pod(pod: Pod) -> Request:
    """The pod's request; what can never be right is refused with the field, the value and the fix."""
    meta, spec = pod.metadata, pod.spec
    resources = effective_resources(spec)
    slices = read_slices(spec)
    share = read_share(pod) if spec.scheduler_name == names.KAI_SCHEDULER else None
    whole = resources.get(names.NVIDIA_GPU, 0)
    if share is not None and (whole or slices or _asks_static_mig(resources)):
        raise RequestError(
            f"metadata.annotations[{share.annotation}]",
            meta.annotations[share.annotation],
            "a pod with a share cannot request whole GPUs or MIG slices; remove one of them",
        )
    owner = meta.controller
    return Request(
        uid=PodUID(meta.uid),
        namespace=meta.namespace,
        name=meta.name or meta.generate_name,
        labels=meta.labels,
        scheduler_name=spec.scheduler_name,
        node_name=NodeName(spec.node_name),
        priority=spec.priority or 0,
        priority_class=spec.priority_class_name,
        queue=QueueName(meta.labels.get(names.QUEUE_LABEL) or DEFAULT_QUEUE),
        group=meta.annotations.get(names.POD_GROUP) or None,
        subgroup=meta.labels.get(names.SUBGROUP_LABEL, ""),
        preemptibility=meta.labels.get(names.PREEMPTIBILITY_LABEL, ""),
        policy=_policy(meta.annotations),
        whole_gpus=whole,
        share=share,
        slices=slices,
        resources=resources,
        rules=compile_rules(pod),
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        created=meta.creation_timestamp or "",
        owner=owner.uid if owner else None,
        terminating=meta.deleting,
    )


def _policy(annotations: Mapping[str, str]) -> str | None:
    policy = annotations.get(names.POLICY)
    if policy is not None and policy not in POLICIES:
        raise RequestError(
            f"metadata.annotations[{names.POLICY}]",
            policy,
            f"must be one of {', '.join(POLICIES)}",
            code="UnknownPolicy",
        )
    return policy


def _asks_static_mig(resources: Mapping[str, int]) -> bool:
    return any(name.startswith(names.NVIDIA_MIG_PREFIX) for name in resources)
