"""What is true about a pod that is written on a reservation: does it still need its share?

The informers are enough to know that it does. That it does not, the server must say, unless the informer has seen the
end of its containers.
"""

from __future__ import annotations

from enum import Enum

from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.kinds import BIND_REQUESTS, PODS
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import Sharer, groups_of, shared_gpus_of
from apportion.binder.informers import Informers
from apportion.cluster import errors
from apportion.cluster.client import Client


class SharerState(Enum):
    RUNS = "runs"  # bound to the GPU of the reservation, and its containers have not ended
    BINDING = "binding"  # its BindRequest is valid
    WITHDRAWN = "withdrawn"  # it exists without a node, and no BindRequest will bind it here
    ENDED = "ended"  # gone, ended, or bound to another GPU


class SharerStates:
    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._informers = informers
        self._vanished: set[PodUID] = set()  # seen with a label, and then no longer; as long as there is a BindRequest
        informers.pods.on_change(self._pod_changed)
        informers.requests.on_change(self._request_changed)

    async def of(self, uid: PodUID, sharer: Sharer, group: str, node: NodeName) -> SharerState:
        seen = self._informers.pod(uid)
        if seen is not None and (seen.spec.node_name or seen.terminal):
            return _of_placed(seen, group, node)
        request = self._informers.requests.get(sharer.name, sharer.namespace)
        if request is not None and _is_valid(request, uid, group, node) and uid not in self._vanished:
            return SharerState.BINDING
        return await self._read(uid, sharer, group, node)

    async def _read(self, uid: PodUID, sharer: Sharer, group: str, node: NodeName) -> SharerState:
        try:
            pod = await self._client.get(PODS, sharer.name, namespace=sharer.namespace, into=Pod)
        except errors.NotFound:
            return SharerState.ENDED
        if pod.uid != uid:
            return SharerState.ENDED
        if pod.spec.node_name or pod.terminal:
            return _of_placed(pod, group, node)
        try:
            request = await self._client.get(BIND_REQUESTS, sharer.name, namespace=sharer.namespace, into=BindRequest)
        except errors.NotFound:
            return SharerState.WITHDRAWN
        return SharerState.BINDING if _is_valid(request, uid, group, node) else SharerState.WITHDRAWN

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._vanished.discard(new.uid)
        elif old is not None and not self._informers.is_reservation(old):
            self._vanished.add(old.uid)

    def _request_changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        if new is None and old is not None:
            self._vanished.discard(PodUID(old.spec.pod_uid))


def _of_placed(pod: Pod, group: str, node: NodeName) -> SharerState:
    if pod.terminal or pod.spec.node_name != node:
        return SharerState.ENDED
    groups = {gpu.group for gpu in shared_gpus_of(pod.metadata)} or set(groups_of(pod.metadata))
    return SharerState.RUNS if group in groups or not groups else SharerState.ENDED


def _is_valid(request: BindRequest, uid: PodUID, group: str, node: NodeName) -> bool:
    spec = request.spec
    here = spec.pod_uid == uid and spec.selected_node == node and group in spec.selected_gpu_groups
    return here and not request.failed
