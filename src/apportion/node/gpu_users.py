"""Which running pods of this node were given which devices: slices, whole GPUs, static devices, and shares of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from apportion.apis.custom_resources.accelerators import DeviceHolder
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import DeviceUUID, PodUID
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import shared_gpus_of
from apportion.node.hardware.partitioner import GpuUser

RUNNING, RESERVATION = "Running", "reservation"


def find(
    pods: Iterable[Pod], holders: Mapping[DeviceUUID, DeviceHolder], claims: Iterable[AllocationClaim]
) -> list[GpuUser]:
    """A reservation pod holds its GPU for others and uses nothing of it."""
    alone: dict[PodUID, list[DeviceUUID]] = {}
    for device, holder in holders.items():
        if holder.kind != RESERVATION:
            alone.setdefault(PodUID(holder.pod_uid), []).append(device)
    for claim in claims:
        if claim.status.mig_uuid:
            alone.setdefault(claim.pod_uid, []).append(DeviceUUID(claim.status.mig_uuid))
    found: list[GpuUser] = []
    for pod in pods:
        if pod.status.phase != RUNNING:
            continue
        devices: dict[DeviceUUID, int | None] = dict.fromkeys(alone.get(PodUID(pod.metadata.uid), ()))
        devices |= {gpu.device: gpu.mib for gpu in shared_gpus_of(pod.metadata)}
        if devices:
            found.append(_user(pod, devices))
    return found


def _user(pod: Pod, devices: Mapping[DeviceUUID, int | None]) -> GpuUser:
    meta = pod.metadata
    return GpuUser(PodUID(meta.uid), meta.namespace, meta.name, devices, meta.annotations)
