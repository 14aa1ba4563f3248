"""NodeAccelerator: the GPUs of one node as its agent found them. Rule S09.

Named after its node, in the agents' namespace. A node takes slices while the condition Ready is True
and the pod named in `status.agent` is there and ready. `status.nodeResources` repeats the GPUs that are
sliced on demand in the form of the DAS operator, for clients that were written for it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from apportion.apis.identities import PodUID
from apportion.apis.meta import Conditions, ObjectMeta, Wire, condition

READY = "Ready"

HolderKind = Literal["whole", "static", "reservation"]


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


class FixedSlice(Wire):
    """A static slice: a device of the kubelet, not made on demand."""

    profile: str
    start: Annotated[int, Meta(ge=0, description="First memory unit that the slice covers.")]
    size: Annotated[int, Meta(ge=1, description="How many memory units it covers.")]
    uuid: str
    pod_uid: Annotated[str, Meta(description="The pod that holds it; empty while it is free.")] = msgspec.field(
        default="", name="podUID"
    )


class DeviceHolder(Wire):
    """A pod to which the kubelet gave the GPU or static slices of it, until the pod has ended."""

    pod_uid: Annotated[PodUID, Meta(min_length=1)] = msgspec.field(name="podUID")
    kind: Annotated[
        HolderKind,
        Meta(description="whole: the GPU; static: slices under fixed; reservation: the GPU, for pods that share it."),
    ]


class Accelerator(Wire):
    """One GPU."""

    uuid: str
    model: Annotated[str, Meta(description="Product name as the driver gives it.")]
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(default=0, name="memoryMiB")
    mig_enabled: Annotated[bool, Meta(description="Only GPUs in MIG mode are sliced.")] = False
    healthy: Annotated[bool, Meta(extra_json_schema={"default": True})] = True
    profiles: list[AcceleratorProfile] = []
    foreign: Annotated[list[ForeignSlice], Meta(description="Places that others use: nothing is put there.")] = []
    fixed: Annotated[list[FixedSlice], Meta(description="The static slices of a GPU that has a layout.")] = []
    holders: Annotated[
        list[DeviceHolder], Meta(description="Pods that hold the GPU or static slices of it, as the kubelet recorded.")
    ] = []


class AgentReference(Wire):
    """The pod of the agent that wrote the status."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class NodeAcceleratorSpec(Wire):
    accelerator_type: Annotated[str, Meta(description="How the GPUs are partitioned; empty means nvidia-mig.")] = ""


class NodeGpu(Wire):
    """A GPU in the form of the DAS operator."""

    gpu_uuid: str
    gpu_name: str
    gpu_memory: Annotated[str, Meta(description="A quantity, for example 40Gi.")]


class ProfilePlacement(Wire):
    size: int
    start: int


class MigProfile(Wire):
    """Where slices of a profile may lie, and its numbers in NVML."""

    placements: list[ProfilePlacement]
    gi_profile_id: Annotated[
        int | None, Meta(description="NVML_GPU_INSTANCE_PROFILE_*, with which NVML is asked for the profile.")
    ] = None
    ci_profile_id: Annotated[
        int | None, Meta(description="NVML_COMPUTE_INSTANCE_PROFILE_* of the compute instance that fills it.")
    ] = None


class NodeResources(Wire, omit_defaults=False):
    """The GPUs that are sliced on demand, in the form of the DAS operator."""

    node_gpus: list[NodeGpu] = []
    mig_placement: Annotated[dict[str, MigProfile], Meta(description="By profile.")] = {}
    node_resources: Annotated[dict[str, str], Meta(description="What the agent offers the kubelet.")] = {}


class NodeAcceleratorStatus(Wire):
    gpus: list[Accelerator] = []
    node_resources: NodeResources | None = None
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
