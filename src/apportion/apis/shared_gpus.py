"""How shared GPUs are written down: on pods with a share, on reservation pods, and in the names of objects.

A shared GPU is a *group*: one reservation pod that holds the device, and the pods that share it, all with its label.
The scheduler names a group when its first pod is placed. On nodes whose agent reports GPUs, devices are known by UUID;
on others a device is a *slot*, one of those that the kubelet offers, and only the reservation pod knows its UUID.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.meta import ObjectMeta
from apportion.apis.pods import Pod
from apportion.apis.shares import MILLI, Share

CDI_GPU = "k8s.device-plugin.nvidia.com/gpu="  # the CDI name of a GPU, before its UUID
CONFIG_MAP_SUFFIX = "shared-gpu"
_GROUPS = uuid.UUID("6f3d3c0e-6f0b-5f0e-9d0a-2a3c5f9f6b11")
_LONGEST_NODE = 40  # characters of a node's name in the name of a reservation pod
_GROUP_CHARACTERS = 10
_BYTES_FROM = 2**20  # no GPU has that many MiB: such a label is in bytes
_LONGEST_AMOUNT = 19  # characters of a label with an amount of memory


class SharedGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a bound pod has of one GPU: `device` is its UUID, or a slot where no agent reports GPUs; then `uuid` says
    which GPU it is."""

    group: str
    device: DeviceUUID
    mib: Annotated[int, msgspec.Meta(ge=0)]
    uuid: str = ""


class Sharer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod on the reservation of its GPU, with what it asks for: thousandths of the memory, or MiB."""

    namespace: str
    name: str
    milli: int | None = None
    mib: int | None = None

    @classmethod
    def of(cls, pod: Pod, share: Share) -> Sharer:
        return cls(pod.metadata.namespace, pod.metadata.name, share.milli, share.memory_mib)

    def mib_on(self, device_mib: int) -> int:
        return self.mib if self.mib is not None else (self.milli or 0) * device_mib // MILLI


def new_group(first: PodUID, node: NodeName, device: DeviceUUID, number: int = 0) -> str:
    """The group of a GPU that its first pod is about to share: the same for every attempt on the same place.

    `number`: another name, if the group of an earlier attempt is in use on another GPU."""
    return str(uuid.uuid5(_GROUPS, f"{first}/{node}/{device}" + (f"/{number}" if number else "")))


def slot(node: NodeName, number: int) -> DeviceUUID:
    """A device of a node whose GPUs nobody reports."""
    return DeviceUUID(f"{node}/{number}")


def memory_by_label(labels: Mapping[str, str]) -> int | None:
    """The MiB of each GPU of a node, by its label; None if that cannot be read."""
    text = labels.get(names.GPU_MEMORY_LABEL, "")
    if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_AMOUNT or not int(text):
        return None
    return int(text) if int(text) < _BYTES_FROM else int(text) // 2**20


def is_slot(device: str) -> bool:
    return "/" in device


def groups_of(metadata: ObjectMeta) -> tuple[str, ...]:
    """The shared GPUs that a pod belongs to, by its labels."""
    several = sorted(
        value for name, value in metadata.labels.items() if name.startswith(names.GPU_GROUP_LABEL_PREFIX) and value
    )
    first = metadata.labels.get(names.GPU_GROUP_LABEL)
    return tuple(several) if several else (first,) if first else ()


def group_labels(groups: Sequence[str]) -> dict[str, str]:
    """The labels of a pod that shares these GPUs."""
    several = {f"{names.GPU_GROUP_LABEL_PREFIX}{group}": group for group in groups} if len(groups) > 1 else {}
    return {names.GPU_GROUP_LABEL: groups[0], **several}


def reservation_name(node: NodeName, group: str) -> str:
    """The reservation pod of a group: there can be only one under this name."""
    return f"gpu-reservation-{node[:_LONGEST_NODE].rstrip('.-')}-{_digest(f'{node}/{group}')}"


def config_map_name(pod: Pod, share: Share) -> str:
    """The ConfigMap with the devices of the container that has the share. The pod must name its prefix."""
    prefix = pod.metadata.annotations.get(names.SHARED_GPU_CONFIG_MAP, "")
    if not prefix:
        raise InputError(f"metadata.annotations[{names.SHARED_GPU_CONFIG_MAP}]", prefix, _not_set(pod))
    return f"{prefix}-{config_map_index(pod, share)}"


def config_map_index(pod: Pod, share: Share) -> str:
    """Which container has the share: `0`, or `i0` for an init container."""
    for number, container in enumerate(pod.spec.init_containers):
        if container.name == share.container:
            return f"i{number}"
    return str([container.name for container in pod.spec.containers].index(share.container))


def encode_shared_gpus(gpus: Iterable[SharedGpu]) -> str:
    return msgspec.json.encode(list(gpus)).decode()


def shared_gpus_of(metadata: ObjectMeta) -> tuple[SharedGpu, ...]:
    """What is written on a bound pod; nothing if the annotation is missing or cannot be read."""
    try:
        return tuple(msgspec.json.decode(metadata.annotations.get(names.SHARED_GPUS, "[]"), type=list[SharedGpu]))
    except msgspec.DecodeError:
        return ()


def encode_sharers(sharers: Mapping[PodUID, Sharer]) -> str:
    return msgspec.json.encode(dict(sorted(sharers.items()))).decode()


def sharers_of(metadata: ObjectMeta) -> dict[PodUID, Sharer]:
    """The pods that are written on a reservation pod; none if the annotation is missing or cannot be read."""
    try:
        return msgspec.json.decode(metadata.annotations.get(names.SHARERS, "{}"), type=dict[PodUID, Sharer])
    except msgspec.DecodeError:
        return {}


def _not_set(pod: Pod) -> str:
    namespace = pod.metadata.namespace
    if namespace in names.NAMESPACES_WITHOUT_ADMISSION:
        return (
            f"is set at admission, and pods in namespace {namespace} are not changed at admission, so they cannot "
            "share a GPU; create the pod in another namespace"
        )
    return "is set at admission, and this pod was created without it; delete the pod and create it again"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_GROUP_CHARACTERS]
