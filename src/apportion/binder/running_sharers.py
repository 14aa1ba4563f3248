"""The pods that run on a shared GPU, and which GPU each of them really has.

What a bound pod has is written on it. Where no agent reports GPUs that is a slot, and beside it the UUID.
"""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.kinds import PODS
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import Sharer, groups_of, shared_gpus_of
from apportion.apis.shares import read_share
from apportion.binder.informers import Informers
from apportion.cluster.client import Client


class RunningSharers:
    """Bound pods whose containers have not ended, by group."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._informers = informers

    def of(self, group: str) -> list[Pod]:
        """As far as the informer has seen them."""
        return [pod for pod in self._informers.sharers(group) if runs_on(pod, group)]

    async def read(self, group: str) -> list[Pod]:
        """The same from the server."""
        found: dict[str, Pod] = {}
        for selector in (f"{names.GPU_GROUP_LABEL}={group}", f"{names.GPU_GROUP_LABEL_PREFIX}{group}={group}"):
            listing = await self._client.list(PODS, labels=selector, into=Pod)
            found |= {pod.metadata.uid: pod for pod in listing.items if not self._informers.is_reservation(pod)}
        return [pod for pod in found.values() if runs_on(pod, group)]

    def without_reservation(self, node: NodeName) -> list[str]:
        """The groups of running pods whose GPU nobody holds: the kubelet of the node can hand it out again."""
        lost: set[str] = set()
        for pod in self._informers.sharers_on(node):
            unheld = [group for group in groups_of(pod.metadata) if not self._informers.reservations(group)]
            lost.update(group for group in unheld if runs_on(pod, group))
        return sorted(lost)

    def gpus(self, group: str) -> set[DeviceUUID]:
        """The UUIDs of the GPUs that running pods of the group have: one, if all is well."""
        written = [gpu for pod in self.of(group) for gpu in shared_gpus_of(pod.metadata) if gpu.group == group]
        return {DeviceUUID(gpu.uuid or gpu.device) for gpu in written}


def runs_on(pod: Pod, group: str) -> bool:
    """Whether a pod with the group's label runs on the shared GPU, by what was written on it when it was bound.

    The binder of KAI Scheduler does not write which GPUs a pod has.
    """
    if not pod.spec.node_name or pod.terminal:
        return False
    gpus = shared_gpus_of(pod.metadata)
    if not gpus:
        return pod.metadata.annotations.get(names.RECEIVED_RESOURCE_TYPE) == names.FRACTION
    return any(gpu.group == group for gpu in gpus)


def sharers_among(pods: Iterable[Pod]) -> dict[PodUID, Sharer]:
    """What these pods ask for; pods without a share that can be read are left out."""
    found = {}
    for pod in pods:
        try:
            share = read_share(pod)
        except InputError:
            continue
        if share is not None:
            found[pod.uid] = Sharer.of(pod, share)
    return found
