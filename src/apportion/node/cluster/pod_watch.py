"""The pods of this node: a local copy, and the API itself where the copy cannot know."""

from __future__ import annotations

from apportion.apis import kinds
from apportion.apis.custom_resources.claims import PodReference
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.node.cluster import pod_lifecycle
from apportion.node.cluster.pod_lifecycle import PodLifecycle

BY_UID = "uid"


class PodWatch:
    def __init__(self, client: Client, node: NodeName) -> None:
        self._client = client
        self._node = node
        self.informer = Informer(
            client,
            kinds.PODS,
            into=Pod,
            fields=f"spec.nodeName={node}",
            indexes={BY_UID: lambda pod: [pod.metadata.uid]},
        )

    def get(self, uid: PodUID) -> Pod | None:
        return next(iter(self.informer.indexed(BY_UID, uid)), None)

    async def find(self, uid: PodUID, reference: PodReference | None) -> Pod | None:
        """The pod; a claim is made before its pod is bound, so absence from the copy proves nothing."""
        known = self.get(uid)
        if known is not None or reference is None:
            return known
        try:
            return await self._client.get(kinds.PODS, reference.name, namespace=reference.namespace, into=Pod)
        except errors.NotFound:
            return None

    async def life(self, uid: PodUID, reference: PodReference | None) -> PodLifecycle:
        return pod_lifecycle.of(await self.find(uid, reference), uid, self._node)
