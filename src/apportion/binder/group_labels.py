"""The labels that say which shared GPUs a pod belongs to. They also decide between binding a pod and giving it up.

A pod is bound at the version at which it got its labels for a BindRequest. A pod whose request has failed or is gone
is changed before it is taken off its reservation: it loses the labels, and the request that it has them for. So
whichever comes second fails, provided that the binder

- read the pod, added it to its reservations and then labelled it as it was read: who gave it up meanwhile has changed
  it, and who was about to take it off has found the reservation changed; or
- saw that the request was still valid after the pod had its labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.apis.kinds import PODS
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import Sharer, group_labels
from apportion.binder.leased_writes import LeasedWrites, as_pod
from apportion.cluster import errors
from apportion.cluster.client import Client


class GroupLabels:
    def __init__(self, client: Client, writes: LeasedWrites) -> None:
        self._client = client
        self._writes = writes

    async def add(self, pod: Pod, groups: Sequence[str], request_uid: str) -> str:
        """The version at which the pod has the labels of these groups, and of no others, for this request."""
        wanted: dict[str, str | None] = dict(group_labels(groups))
        present = {name: value for name, value in pod.metadata.labels.items() if _is_group_label(name)}
        if present == wanted and pod.metadata.annotations.get(names.BIND_REQUEST) == request_uid:
            return pod.metadata.resource_version
        others = dict.fromkeys(name for name in present if name not in wanted)
        annotations = {names.BIND_REQUEST: request_uid}
        return (await self._patch(pod, {**others, **wanted}, annotations)).metadata.resource_version

    async def remove(self, uid: PodUID, sharer: Sharer, group: str) -> bool:
        """Whether the pod can no longer be bound by a request that is not valid any more. False: it is bound."""
        try:
            pod = await self._client.get(PODS, sharer.name, namespace=sharer.namespace, into=Pod)
            if pod.uid != uid:
                return True
            if pod.spec.node_name:
                return False
            gone: dict[str, str | None] = {
                name: None for name, value in pod.metadata.labels.items() if _is_group_label(name, group, value)
            }
            # Another value each time, so that the version changes.
            await self._patch(pod, gone, {names.BIND_REQUEST: f"none since {pod.metadata.resource_version}"})
        except errors.NotFound:
            return True
        return True

    async def _patch(
        self, pod: Pod, labels: dict[str, str | None], annotations: Mapping[str, str] | None = None
    ) -> Pod:
        meta = pod.metadata
        changed: dict[str, Any] = {"uid": meta.uid, "resourceVersion": meta.resource_version, "labels": labels}
        if annotations:
            changed["annotations"] = annotations
        return as_pod(await self._writes.patch(PODS, meta.name, {"metadata": changed}, meta.namespace))


def _is_group_label(name: str, group: str = "", value: str = "") -> bool:
    ours = name == names.GPU_GROUP_LABEL or name.startswith(names.GPU_GROUP_LABEL_PREFIX)
    return ours and (not group or value == group)
