"""The status of a NodeAccelerator, made from what the agent knows of its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apportion.apis.custom_resources import accelerators
from apportion.apis.custom_resources.accelerators import (
    Accelerator,
    AcceleratorProfile,
    AgentReference,
    DeviceHolder,
    FixedSlice,
    ForeignSlice,
    MigProfile,
    NodeAcceleratorStatus,
    NodeGpu,
    NodeResources,
    PodMemoryUse,
    ProfilePlacement,
    UnclaimedSlice,
)
from apportion.apis.identities import DeviceUUID
from apportion.apis.meta import Condition, condition
from apportion.node.container.runtime_config import BY_VARIABLE, RuntimeReport
from apportion.node.hardware.partitioner import Gpu, Slice
from apportion.node.hardware.slice_records import SliceRecord
from apportion.node.kubelet import capacity
from apportion.node.memory_use import Use
from apportion.node.readiness import Readiness

UNKNOWN_SLICES = "UnknownSlices"
RUNTIME = "ContainerRuntimeConfigured"
MIB_PER_GIB = 1024


@dataclass(frozen=True)
class NodeReport:
    """`foreign` are slices that Apportion did not make; `holders` are pods by the uuid of the device they hold;
    `unclaimed` are slices of running pods whose claims are gone; `runtime` is None where NVIDIA's container runtime is
    not used; `uses` is the memory that pods use, as far as it is known."""

    gpus: Sequence[Gpu]
    readiness: Readiness
    foreign: Sequence[Slice]
    holders: Mapping[DeviceUUID, DeviceHolder]
    unclaimed: Sequence[SliceRecord] = ()
    runtime: RuntimeReport | None = None
    uses: Sequence[Use] = ()


def status_of(state: NodeReport, agent: AgentReference, old: Sequence[Condition], now: str) -> NodeAcceleratorStatus:
    """`old` are the conditions that are published: one that has not changed keeps its time."""
    conditions = [_ready(state.readiness)]
    if state.foreign:
        conditions.append(_unknown(state.foreign))
    if state.runtime:
        conditions.append(_runtime(state.runtime))
        conditions += _sharing(state.runtime)
    return NodeAcceleratorStatus(
        gpus=[_accelerator(gpu, state) for gpu in state.gpus],
        node_resources=_node_resources(state.gpus),
        agent=agent,
        unclaimed=[_unclaimed(entry) for entry in sorted(state.unclaimed, key=lambda entry: entry.claim)],
        memory_use=_memory_use(state.uses),
        conditions=[_dated(entry, old, now) for entry in conditions],
    )


def ready_condition(readiness: Readiness, now: str) -> Condition:
    return _dated(_ready(readiness), (), now)


def _accelerator(gpu: Gpu, state: NodeReport) -> Accelerator:
    return Accelerator(
        uuid=gpu.uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        mig_enabled=gpu.sliced,
        healthy=gpu.healthy,
        profiles=[
            AcceleratorProfile(name=entry.name, size=entry.size, starts=list(entry.starts), limit=entry.limit)
            for entry in gpu.profiles
        ],
        foreign=[
            ForeignSlice(start=found.place.start, size=found.place.size, profile=found.place.profile)
            for found in sorted(state.foreign, key=lambda found: found.place)
            if found.place.gpu == gpu.uuid
        ],
        fixed=[_fixed(found, state.holders) for found in gpu.fixed or ()],
        holders=_holders(gpu, state.holders),
    )


def _fixed(found: Slice, holders: Mapping[DeviceUUID, DeviceHolder]) -> FixedSlice:
    holder = holders.get(found.uuid)
    return FixedSlice(
        profile=found.place.profile,
        start=found.place.start,
        size=found.place.size,
        uuid=found.uuid,
        pod_uid=holder.pod_uid if holder else "",
    )


def _holders(gpu: Gpu, holders: Mapping[DeviceUUID, DeviceHolder]) -> list[DeviceHolder]:
    """One entry per pod, also if it holds several static slices of the GPU."""
    devices = [gpu.uuid, *(found.uuid for found in gpu.fixed or ())]
    found = {holder.pod_uid: holder for device in devices if (holder := holders.get(device))}
    return [found[uid] for uid in sorted(found)]


def _unclaimed(entry: SliceRecord) -> UnclaimedSlice:
    place = entry.place
    return UnclaimedSlice(entry.claim, entry.pod_uid, place.profile, place.gpu, place.start, place.size)


def _memory_use(uses: Sequence[Use]) -> list[PodMemoryUse]:
    known = {(use.pod.uid, use.device): use.used_mib for use in uses if use.used_mib is not None}
    return [PodMemoryUse(pod_uid=uid, uuid=device, used_mib=mib) for (uid, device), mib in sorted(known.items())]


# The form of the DAS operator


def _node_resources(gpus: Sequence[Gpu]) -> NodeResources:
    """Only GPUs on which its clients may place slices: in MIG mode, healthy, without a static layout."""
    usable = [gpu for gpu in gpus if gpu.sliced and gpu.healthy and not gpu.fixed]
    placement: dict[str, MigProfile] = {}
    for gpu in usable:
        for entry in gpu.profiles:  # where models differ, the first GPU decides, as it does there
            places = [ProfilePlacement(size=entry.size, start=start) for start in entry.starts]
            profile = MigProfile(placements=places, gi_profile_id=entry.gi_index, ci_profile_id=entry.ci_index)
            placement.setdefault(entry.name, profile)
    return NodeResources(
        node_gpus=[NodeGpu(gpu_uuid=gpu.uuid, gpu_name=gpu.model, gpu_memory=_quantity(gpu)) for gpu in usable],
        mig_placement=placement,
        node_resources={name: str(amount.healthy) for name, amount in sorted(capacity.amounts(usable).items())},
    )


def _quantity(gpu: Gpu) -> str:
    gib, rest = divmod(gpu.memory_mib, MIB_PER_GIB)
    return f"{gpu.memory_mib}Mi" if rest else f"{gib}Gi"


# Conditions


def _ready(readiness: Readiness) -> Condition:
    status = "True" if readiness.ready else "False"
    return Condition(type=accelerators.READY, status=status, reason=readiness.reason, message=readiness.message)


def _unknown(foreign: Sequence[Slice]) -> Condition:
    text = "; ".join(sorted(f"{found.uuid or 'unfinished'}: {found.place}" for found in foreign))
    message = f"Slices that Apportion did not create, left unchanged: {text}"
    return Condition(type=UNKNOWN_SLICES, status="True", reason="NotMadeHere", message=message)


def _runtime(found: RuntimeReport) -> Condition:
    return Condition(type=RUNTIME, status=found.status, reason=found.reason, message=found.message)


def _sharing(found: RuntimeReport) -> list[Condition]:
    """A pod with a share has no device of the kubelet: its container gets the GPU by a variable, or not at all."""
    if not found.ignoring:
        return []
    message = (
        "GPUs of this node are not shared: NVIDIA's container runtime ignores NVIDIA_VISIBLE_DEVICES of unprivileged "
        f"containers. To share them, set {BY_VARIABLE} = true in {found.ignoring}"
    )
    return [Condition(type=accelerators.SHARING, status="False", reason="VariableIgnored", message=message)]


def _dated(entry: Condition, old: Sequence[Condition], now: str) -> Condition:
    before = condition(list(old), entry.type)
    entry.last_transition_time = before.last_transition_time if before and before.status == entry.status else now
    return entry
