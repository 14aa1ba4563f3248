"""Which group uses a GPU: two groups never share one.

A reservation that was lost can leave pods running on a GPU that the kubelet then hands out again, and a device plugin
that divides GPUs itself hands out one several times. So before a pod is bound, its group claims the GPU: against the
pods of other groups that run on it, and against those that this process is about to bind.
"""

from __future__ import annotations

from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.kinds import PODS
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import shared_gpus_of
from apportion.binder.informers import Informers
from apportion.binder.refusals import CannotBind
from apportion.cluster import errors
from apportion.cluster.client import Client


class GpuUsers:
    """Of all shared GPUs, by UUID."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._informers = informers
        self._claims: dict[DeviceUUID, dict[PodUID, str]] = {}  # groups of pods that are about to be bound
        self._claimed: dict[PodUID, set[DeviceUUID]] = {}
        informers.pods.on_change(self._pod_changed)
        informers.requests.on_change(self._request_changed)

    async def claim(self, gpu: DeviceUUID, node: NodeName, group: str, uid: PodUID) -> None:
        """Until the informer has seen the pod bound, or its BindRequest failed or withdrawn. Raises CannotBind."""
        claims = self._claims.get(gpu, {})
        if any(other != group and self._informers.is_requested(claimant) for claimant, other in claims.items()):
            raise CannotBind(f"another group of pods is about to share GPU {gpu} of node {node}")
        self._claims.setdefault(gpu, {})[uid] = group
        self._claimed.setdefault(uid, set()).add(gpu)
        for pod in self._informers.running_on(gpu, node):
            if _in_another_group(pod, gpu, group) and await self._still_runs(pod, gpu, group):
                self._release(uid)
                raise CannotBind(f"pods of another group run on GPU {gpu} of node {node}")

    async def _still_runs(self, seen: Pod, gpu: DeviceUUID, group: str) -> bool:
        """The informer may not have seen its end."""
        meta = seen.metadata
        try:
            pod = await self._client.get(PODS, meta.name, namespace=meta.namespace, into=Pod)
        except errors.NotFound:
            return False
        return pod.uid == seen.uid and not pod.terminal and _in_another_group(pod, gpu, group)

    def _release(self, uid: PodUID) -> None:
        for gpu in self._claimed.pop(uid, ()):
            claims = self._claims[gpu]
            del claims[uid]
            if not claims:
                del self._claims[gpu]

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None and old is not None:
            self._release(old.uid)
        elif new is not None and new.spec.node_name:
            self._release(new.uid)

    def _request_changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        if old is not None and (new is None or new.failed):
            self._release(PodUID(old.spec.pod_uid))


def _in_another_group(pod: Pod, gpu: DeviceUUID, group: str) -> bool:
    """Whether that is how it shares the GPU."""
    return any(gpu in (each.uuid, each.device) and each.group != group for each in shared_gpus_of(pod.metadata))
