"""The ConfigMap from which the container of a pod with a share reads its GPUs. Rule G06.

It is immutable and owned by the pod, so it goes with it. One of that name that is not the pod's own is never touched.
One of an earlier BindRequest of the same pod is replaced: the pod has no node, so nobody has read it. Before that the
request that replaces it is asked for once more, so a binder that is late never takes the ConfigMap of a later request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from apportion.apis import names
from apportion.apis.identities import DeviceUUID
from apportion.apis.kinds import CONFIG_MAPS
from apportion.apis.meta import ObjectMeta, Wire
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import CDI_GPU, config_map_name
from apportion.apis.shares import Share
from apportion.binder.leased_writes import LeasedWrites
from apportion.binder.refusals import CannotBind
from apportion.cluster import errors
from apportion.cluster.client import Client


class ConfigMap(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    data: dict[str, str] = {}
    immutable: bool = False

    def owned_by(self, pod: Pod) -> bool:
        return any(owner.uid == pod.metadata.uid for owner in self.metadata.owner_references)


class ConfigMaps:
    """One for each pod with a share, in the pod's namespace."""

    def __init__(self, client: Client, writes: LeasedWrites) -> None:
        self._client = client
        self._writes = writes

    async def ensure(
        self,
        pod: Pod,
        share: Share,
        data: dict[str, str],
        *,
        request_uid: str,
        check_valid: Callable[[], Awaitable[None]],
    ) -> None:
        """Raises CannotBind if there is a foreign one, and what `check_valid` raises before one is replaced."""
        wanted = _body(pod, config_map_name(pod, share), data, request_uid)
        try:
            await self._writes.create(CONFIG_MAPS, wanted, pod.metadata.namespace)
        except errors.AlreadyExists:
            stale = await self._stale(pod, wanted)
            if stale is None:
                return
            await check_valid()
            await self._replace(stale, wanted)

    async def _stale(self, pod: Pod, wanted: dict[str, Any]) -> ConfigMap | None:
        """The ConfigMap of an earlier request; None if there is the wanted one."""
        name = wanted["metadata"]["name"]
        found = await self._get(pod, name)
        if found is None:
            raise errors.Conflict(409, "Conflict", f"ConfigMap {name} was deleted")
        if not found.owned_by(pod):
            raise CannotBind(
                f"ConfigMap {name} does not belong to this pod: annotation {names.SHARED_GPU_CONFIG_MAP} was copied; "
                "delete this pod, and create it again without the annotation and the variables that refer to it"
            )
        if found.metadata.annotations.get(names.BIND_REQUEST) != wanted["metadata"]["annotations"][names.BIND_REQUEST]:
            return found
        if found.data != wanted["data"] or not found.immutable:
            raise CannotBind(f"ConfigMap {name} names other GPUs than the pod has now")
        return None

    async def _replace(self, stale: ConfigMap, wanted: dict[str, Any]) -> None:
        meta = stale.metadata
        try:
            await self._writes.delete(CONFIG_MAPS, meta.name, meta.namespace, uid=meta.uid)
        except errors.NotFound as error:
            raise errors.Conflict(409, "Conflict", f"ConfigMap {meta.name} was replaced") from error
        await self._writes.create(CONFIG_MAPS, wanted, meta.namespace)

    async def _get(self, pod: Pod, name: str) -> ConfigMap | None:
        try:
            return await self._client.get(CONFIG_MAPS, name, namespace=pod.metadata.namespace, into=ConfigMap)
        except errors.NotFound:
            return None


def content(uuids: Sequence[DeviceUUID], portion: str, *, cdi: bool) -> dict[str, str]:
    """What the container reads."""
    devices = ",".join(f"{CDI_GPU}{uuid}" if cdi else uuid for uuid in uuids)
    return {names.VISIBLE_DEVICES: devices, names.GPU_PORTION: portion, names.NUMBER_OF_GPUS: portion}


def _body(pod: Pod, name: str, data: dict[str, str], request_uid: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    metadata = {
        "name": name,
        "namespace": pod.metadata.namespace,
        "ownerReferences": [owner],
        "annotations": {names.BIND_REQUEST: request_uid},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "immutable": True}
