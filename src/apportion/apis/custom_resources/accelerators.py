"""NodeAccelerator: the GPUs of one node as its agent found them. Rule S09.

Named after its node, in the agents' namespace. A node takes slices while the condition Ready is True
and the pod named in `status.agent` is there and ready. `status.nodeResources` repeats the GPUs that are
sliced on demand in the form of the DAS operator, for clients that were written for it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from apportion.apis.identities import ClaimName, DeviceUUID, PodUID
from apportion.apis.meta import Conditions, ObjectMeta, Wire, condition

READY = "Ready"
SHARING = "GPUSharingSupported"  # False: the containers of pods that share a GPU would not get it

HolderKind = Literal["whole", "static", "reservation"]


class AcceleratorProfile(Wire):
    """A MIG profile of a GPU, and the possible start positions of its slices."""

    name: str
    size: Annotated[int, Meta(ge=1, description="Memory units of one slice.")]
    starts: Annotated[list[int], Meta(description="Possible start positions of a slice, in memory units.")] = []
    limit: Annotated[
        int, Meta(ge=0, description="Maximum number of slices on one GPU; 0 if only placements limit it.")
    ] = 0


class ForeignSlice(Wire, omit_defaults=False):
    """A slice that Apportion did not create."""

    start: Annotated[int, Meta(ge=0, description="First memory unit of the slice.")]
    size: Annotated[int, Meta(ge=1, description="Number of memory units.")]
    profile: Annotated[str, Meta(description="Counts towards the limit of the profile; empty if unknown.")] = ""


class FixedSlice(Wire):
    """A static slice: a device of the kubelet, not created on demand."""

    profile: str
    start: Annotated[int, Meta(ge=0, description="First memory unit of the slice.")]
    size: Annotated[int, Meta(ge=1, description="Number of memory units.")]
    uuid: DeviceUUID
    pod_uid: Annotated[str, Meta(description="UID of the pod that it is assigned to; empty if it is free.")] = (
        msgspec.field(default="", name="podUID")
    )


class DeviceHolder(Wire):
    """A pod to which the kubelet assigned the GPU or static slices of it, until the pod has ended."""

    pod_uid: Annotated[PodUID, Meta(min_length=1)] = msgspec.field(name="podUID")
    kind: Annotated[
        HolderKind,
        Meta(description="whole: the GPU; static: slices under fixed; reservation: the GPU, for pods that share it."),
    ]


class Accelerator(Wire):
    """One GPU."""

    uuid: DeviceUUID
    model: Annotated[str, Meta(description="Product name reported by the driver.")]
    memory_mib: Annotated[int, Meta(ge=0)] = msgspec.field(default=0, name="memoryMiB")
    mig_enabled: Annotated[bool, Meta(description="MIG mode; only GPUs in MIG mode are sliced.")] = False
    healthy: Annotated[bool, Meta(extra_json_schema={"default": True})] = True
    profiles: list[AcceleratorProfile] = []
    foreign: Annotated[
        list[ForeignSlice], Meta(description="Slices that Apportion did not create; their placements are not used.")
    ] = []
    fixed: Annotated[list[FixedSlice], Meta(description="The static slices of a GPU with a static layout.")] = []
    holders: Annotated[
        list[DeviceHolder],
        Meta(description="Pods that the GPU or static slices of it are assigned to, as recorded by the kubelet."),
    ] = []


class UnclaimedSlice(Wire, omit_defaults=False):
    """A slice of a running pod whose claim somebody removed; the scheduler creates the claim again."""

    claim: ClaimName
    pod_uid: PodUID = msgspec.field(name="podUID")
    profile: str
    gpu_uuid: DeviceUUID = msgspec.field(name="gpuUUID")
    start: Annotated[int, Meta(ge=0, description="First memory unit of the slice.")]
    size: Annotated[int, Meta(ge=1, description="Number of memory units.")]


class PodMemoryUse(Wire, omit_defaults=False):
    """GPU memory that the processes of a pod use of one device, as the agent measured it. For people only: no
    decision depends on it."""

    pod_uid: PodUID = msgspec.field(name="podUID")
    uuid: Annotated[DeviceUUID, Meta(description="The GPU or the slice.")]
    used_mib: Annotated[int, Meta(ge=0)] = msgspec.field(name="usedMiB")


class AgentReference(Wire):
    """The pod of the agent that wrote the status."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class NodeAcceleratorSpec(Wire):
    accelerator_type: Annotated[str, Meta(description="How the GPUs are partitioned; empty means nvidia-mig.")] = ""


class NodeGpu(Wire):
    """A GPU in the form of the DAS operator."""

    gpu_uuid: DeviceUUID
    gpu_name: str
    gpu_memory: Annotated[str, Meta(description="A quantity, for example 40Gi.")]


class ProfilePlacement(Wire):
    size: int
    start: int


class MigProfile(Wire):
    """The placements of a profile, and its ids in NVML."""

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
    node_resources: Annotated[dict[str, str], Meta(description="Resources that the agent offers to the kubelet.")] = {}


class NodeAcceleratorStatus(Wire):
    gpus: list[Accelerator] = []
    node_resources: NodeResources | None = None
    agent: AgentReference | None = None
    unclaimed: Annotated[
        list[UnclaimedSlice], Meta(description="Slices of running pods whose claims were removed by others.")
    ] = []
    memory_use: Annotated[
        list[PodMemoryUse],
        Meta(
            description="GPU memory in use by pod and device, where the driver reports it; updated at most every 15 s."
        ),
    ] = []
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

    @property
    def takes_shares(self) -> bool:
        found = condition(self.status.conditions, SHARING)
        return found is None or found.status != "False"
