"""NodeAccelerator: the GPUs of one node as its agent found them. Rule S09.

Named after its node, in the agents' namespace. A node takes slices while the condition Ready is True
and the pod named in `status.agent` is there and ready.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis.meta import Conditions, ObjectMeta, Wire, condition

READY = "Ready"


class AcceleratorProfile(Wire):
    """A MIG profile that a GPU offers, and where its slices may begin."""

    name: str
    size: Annotated[int, Meta(ge=1, description="Memory units that one slice covers.")]
    starts: Annotated[list[int], Meta(description="Memory units at which a slice may begin.")] = []
    limit: Annotated[int, Meta(ge=0, description="Most slices of it on one GPU; 0 if only places limit it.")] = 0


class ForeignSlice(Wire, omit_defaults=False):
    """Memory units of a GPU that are taken by a slice that Apportion did not make."""

    start: Annotated[int, Meta(ge=0, description="First memory unit that the slice covers.")]
    size: Annotated[int, Meta(ge=1, description="How many memory units it covers.")]
    profile: Annotated[str, Meta(description="Counts towards the profile's limit; empty if it is not known.")] = ""


class FixedSlice(Wire, omit_defaults=False):
    """A slice that was cut beforehand: a device of the kubelet, not made on demand."""

    profile: str
    start: Annotated[int, Meta(ge=0, description="First memory unit that the slice covers.")]
    size: Annotated[int, Meta(ge=1, description="How many memory units it covers.")]
    uuid: str


class Accelerator(Wire):
    """One GPU."""

    uuid: str
    model: Annotated[str, Meta(description="Product name as the driver gives it.")]
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(default=0, name="memoryMiB")
    mig_enabled: Annotated[bool, Meta(description="Only GPUs in MIG mode are sliced.")] = False
    healthy: Annotated[bool, Meta(extra_json_schema={"default": True})] = True
    profiles: list[AcceleratorProfile] = []
    foreign: Annotated[list[ForeignSlice], Meta(description="Places that others use: nothing is put there.")] = []
    fixed: Annotated[list[FixedSlice], Meta(description="The layout of a GPU that was cut beforehand.")] = []


class AgentReference(Wire):
    """The pod of the agent that wrote the status."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class NodeAcceleratorSpec(Wire):
    accelerator_type: Annotated[str, Meta(description="How the GPUs are partitioned; empty means nvidia-mig.")] = ""


class NodeAcceleratorStatus(Wire):
    gpus: list[Accelerator] = []
    agent: AgentReference | None = None
    conditions: Conditions = []


class NodeAccelerator(Wire):
    """The GPUs of one node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeAcceleratorSpec = msgspec.field(default_factory=NodeAcceleratorSpec)
    status: NodeAcceleratorStatus = msgspec.field(default_factory=NodeAcceleratorStatus)

    @property
    def ready(self) -> bool:
        found = condition(self.status.conditions, READY)
        return found is not None and found.status == "True"
