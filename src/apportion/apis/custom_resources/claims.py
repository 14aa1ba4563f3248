"""AllocationClaim: one MIG slice for one pod, with its placement on a GPU.

The scheduler writes it once the node is chosen and before it binds the pod; the node's agent makes the
slice, moves the state on, and removes the finalizer when the slice is gone. The first state costs no write:
`created` with its condition is the schema's default. Rule S06.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis import names
from apportion.apis.identities import ClaimName, DeviceUUID, NodeName, PodUID
from apportion.apis.meta import Condition, Conditions, ObjectMeta, Wire, condition

CREATED, PROCESSING, IN_USE = "created", "processing", "inUse"
STATE_CONDITION = "State"
LOST_CONDITION = "SliceLost"
"""Set by the agent on a claim that has no placement on its node; the scheduler then evicts the pod."""


# Far above any GPU. Only the API server refuses more: a stored claim that says so can still be read, and removed.
_BOUNDED = {"maximum": 1024}


class MigPlacement(Wire, omit_defaults=False):
    """The position of a slice on its GPU, in memory units."""

    start: Annotated[int, Meta(ge=0, description="First memory unit of the slice.", extra_json_schema=_BOUNDED)]
    size: Annotated[int, Meta(ge=1, description="Number of memory units.", extra_json_schema=_BOUNDED)]


class PodReference(Wire, omit_defaults=False, kw_only=True):
    kind: str = "Pod"
    namespace: str
    name: str
    uid: PodUID


class AllocationClaimSpec(Wire):
    profile: Annotated[str, Meta(min_length=1, description="MIG profile, for example 1g.5gb or 1g.5gb+me.")]
    gpu_uuid: Annotated[DeviceUUID, Meta(description="UUID of the GPU.")] = msgspec.field(name="gpuUUID")
    mig_placement: Annotated[MigPlacement, Meta(description="Position of the slice on that GPU.")]
    nodename: Annotated[NodeName, Meta(min_length=1, description="The node that the pod is bound to.")]
    pod_ref: Annotated[PodReference, Meta(description="The pod that the slice is allocated to.")]
    containers: Annotated[list[str], Meta(description="Containers of that pod that use the slice.")] = []


class AllocationClaimStatus(Wire):
    state: Annotated[str, Meta(description="created, processing or inUse, in this order.")] = ""
    mig_uuid: Annotated[str, Meta(description="UUID of the MIG device; set before inUse.")] = msgspec.field(
        default="", name="migUUID"
    )
    conditions: Conditions = []


# A default cannot tell the time: the condition of the first state has none, the claim's creationTimestamp is it.
FIRST_STATUS = {
    "state": CREATED,
    "conditions": [
        {"type": STATE_CONDITION, "status": "True", "reason": CREATED, "message": f"Allocation is {CREATED}"}
    ],
}


class AllocationClaim(Wire, kw_only=True):
    """One MIG slice of one pod."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: AllocationClaimSpec
    status: Annotated[AllocationClaimStatus, Meta(extra_json_schema={"default": FIRST_STATUS})] = msgspec.field(
        default_factory=AllocationClaimStatus
    )

    @property
    def name(self) -> ClaimName:
        return ClaimName(self.metadata.name)

    @property
    def pod_uid(self) -> PodUID:
        return self.spec.pod_ref.uid

    @property
    def state(self) -> str:
        return self.status.state or CREATED

    @property
    def lost(self) -> str:
        """Why its agent has no placement for it; empty if it has one."""
        found = condition(self.status.conditions, LOST_CONDITION)
        return found.message if found is not None and found.status == "True" else ""


def claim_name(pod_uid: PodUID, container: str, index: int) -> ClaimName:
    """Longer than 63 characters, so good as a name and never as a label value."""
    return ClaimName(f"{pod_uid}-{container}-{index}")


def state_condition(state: str, *, now: str, generation: int = 0, message: str | None = None) -> Condition:
    """The condition that goes with a state; a failure may say more than the state does."""
    return Condition(
        type=STATE_CONDITION,
        status="True",
        reason=state,
        message=message or f"Allocation is {state}",
        last_transition_time=now,
        observed_generation=generation,
    )


def lost_condition(message: str, *, now: str, generation: int = 0) -> Condition:
    return Condition(
        type=LOST_CONDITION,
        status="True",
        reason="NoPlacement",
        message=message,
        last_transition_time=now,
        observed_generation=generation,
    )


def new_claim(
    *,
    name: ClaimName,
    namespace: str,
    profile: str,
    gpu_uuid: DeviceUUID,
    start: int,
    size: int,
    nodename: NodeName,
    pod: PodReference,
    containers: list[str],
) -> AllocationClaim:
    """A claim as the scheduler creates it; the API server gives it its first state."""
    return AllocationClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, finalizers=[names.SLICE_FINALIZER]),
        spec=AllocationClaimSpec(
            profile=profile,
            gpu_uuid=gpu_uuid,
            mig_placement=MigPlacement(start=start, size=size),
            nodename=nodename,
            pod_ref=pod,
            containers=containers,
        ),
    )
