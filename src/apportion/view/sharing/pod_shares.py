"""What a pod with a share has of which GPU, or is about to get, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apportion.apis import shared_gpus
from apportion.apis.errors import InputError
from apportion.apis.pods import Pod
from apportion.apis.shares import decimal, read_share
from apportion.core.node import MILLI
from apportion.view.view import View


@dataclass(frozen=True)
class PodShare:
    """A part of one GPU. `uuid` is empty while only the slot of the GPU is known. In MiB, of all `memory_mib` of the
    GPU, as far as these are known; otherwise in thousandths, if these are known."""

    group: str
    uuid: str
    slot: str = ""
    mib: int = 0
    memory_mib: int = 0
    milli: int = 0

    @property
    def gpu(self) -> str:
        return self.uuid or self.slot

    @property
    def said(self) -> str:
        if not self.mib:
            return f"{decimal(self.milli)} of GPU {self.gpu}" if self.milli else f"a share of GPU {self.gpu}"
        amount = f"{self.mib} of {self.memory_mib} MiB" if self.memory_mib else f"{self.mib} MiB"
        return f"{amount} of GPU {self.gpu}"


def of_pod(view: View, pod: Pod) -> tuple[PodShare, ...]:
    """As the fleet counts them, of a pod that is bound or was handed to the binder."""
    found = []
    for share in view.fleet.shares_of(pod.uid) if view.fleet.holds(pod.uid) else ():
        home = view.fleet.gpu_nodes.get(share.gpu)
        gpu = view.fleet.nodes[home].gpus[share.gpu] if home is not None else None
        slot = share.gpu if shared_gpus.is_slot(share.gpu) else ""
        uuid = view.shares.uuid_of(share.gpu)
        if gpu is None:
            found.append(PodShare(share.group, uuid, slot, share.mib))
        elif gpu.facts.measured:
            found.append(PodShare(share.group, uuid, slot, share.mib, gpu.memory_mib))
        else:
            found.append(PodShare(share.group, uuid, slot, milli=share.mib * MILLI // gpu.memory_mib))
    return tuple(found)


def written_on(pod: Pod) -> tuple[PodShare, ...]:
    """As the binder has written them on a bound pod, for readers who may not see the GPUs."""
    try:
        asked = read_share(pod)
    except InputError:
        asked = None
    found = []
    for gpu in shared_gpus.shared_gpus_of(pod.metadata):
        if not shared_gpus.is_slot(gpu.device):
            found.append(PodShare(gpu.group, gpu.device, mib=gpu.mib))
        elif asked is not None and asked.milli is not None:  # of memory that may be unknown
            found.append(PodShare(gpu.group, gpu.uuid, gpu.device, milli=asked.milli))
        else:
            found.append(PodShare(gpu.group, gpu.uuid, gpu.device, gpu.mib))
    return tuple(found)


def said(shares: Iterable[PodShare]) -> str:
    return " and ".join(share.said for share in shares)
