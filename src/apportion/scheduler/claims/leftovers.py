"""Removes claims that no pod will ever use.

The agent of a claim's node frees slices and takes the finalizer off. Two things are done by the leader:
to delete claims whose pod vanished before it was bound (or was bound elsewhere), which the agent then
frees, and to take the finalizer off where no agent is left because the Node object is gone or tainted
out-of-service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from apportion.apis import names
from apportion.apis.custom_resources.claims import CREATED, AllocationClaim
from apportion.apis.identities import ClaimName
from apportion.apis.kinds import ALLOCATION_CLAIMS, NODES, PODS
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue
from apportion.scheduler import metrics
from apportion.view.informers import BY_NODE, BY_POD, BY_UID

log = logging.getLogger(__name__)

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
LOOK_AGAIN_SECONDS = 2.0


class Leftovers:
    """Follows claims; the informers need the indexes `BY_POD` and `BY_NODE` (claims), `BY_UID` (pods)."""

    def __init__(
        self,
        client: Client,
        *,
        claims: Informer[AllocationClaim],
        pods: Informer[Pod],
        nodes: Informer[Node],
        holds: Callable[[], bool],
    ) -> None:
        self._client = client
        self._claims, self._pods, self._nodes = claims, pods, nodes
        self._holds = holds
        self._queue: WorkQueue[tuple[str, ClaimName]] = WorkQueue("leftovers")
        claims.on_change(self._claim_changed)
        pods.on_change(self._pod_changed)
        nodes.on_change(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        await self._queue.run(self._reconcile)

    def _claim_changed(self, _: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if new is not None:
            self._queue.add((new.metadata.namespace, new.name))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.spec.node_name != old.spec.node_name):
            self._enqueue(self._claims.indexed(BY_POD, old.metadata.uid))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        subject = new or old
        assert subject is not None
        if new is None or _out_of_service(new):
            self._enqueue(self._claims.indexed(BY_NODE, subject.metadata.name))

    def _enqueue(self, claims: list[AllocationClaim]) -> None:
        for claim in claims:
            self._queue.add((claim.metadata.namespace, claim.name))

    async def _reconcile(self, key: tuple[str, ClaimName]) -> float | None:
        claim = self._claims.get(key[1], key[0])
        if claim is None:
            return None
        if not self._holds():  # a late renewal does not end the leadership: retry here
            return LOOK_AGAIN_SECONDS
        if await self._node_is_lost(claim):
            return await self._remove_for_good(claim)
        if claim.metadata.deleting or claim.state != CREATED:
            return None
        return await self._remove_if_unused(claim)

    async def _remove_if_unused(self, claim: AllocationClaim) -> float | None:
        pods = self._pods.indexed(BY_UID, claim.spec.pod_ref.uid)
        if pods:
            node = pods[0].spec.node_name
            if node and node != claim.spec.nodename:
                await self._delete(claim, "pod is bound to another node")
            return None
        if await self._pod_exists(claim):  # our view of pods is behind
            return LOOK_AGAIN_SECONDS
        await self._delete(claim, "pod does not exist")
        return None

    async def _node_is_lost(self, claim: AllocationClaim) -> bool:
        node = self._nodes.get(claim.spec.nodename)
        if node is not None:
            return _out_of_service(node) and not self._pods.indexed(BY_UID, claim.spec.pod_ref.uid)
        try:
            await self._client.get(NODES, claim.spec.nodename, into=Node)
        except errors.NotFound:
            return True
        return False

    async def _pod_exists(self, claim: AllocationClaim) -> bool:
        reference = claim.spec.pod_ref
        try:
            pod = await self._client.get(PODS, reference.name, namespace=reference.namespace, into=Pod)
        except errors.NotFound:
            return False
        return pod.metadata.uid == reference.uid

    async def _delete(self, claim: AllocationClaim, why: str) -> None:
        log.info("deleted claim %s: %s", claim.name, why)
        try:
            await self._client.delete(
                ALLOCATION_CLAIMS, claim.name, namespace=claim.metadata.namespace, uid=claim.metadata.uid
            )
        except (errors.NotFound, errors.Conflict):
            return
        metrics.LEFTOVERS.labels(why).inc()

    async def _remove_for_good(self, claim: AllocationClaim) -> float | None:
        """No agent is left on its node: delete it, and take our finalizer off ourselves."""
        if not claim.metadata.deleting:
            await self._delete(claim, "node does not exist")
            return None  # the change of the claim brings it back here
        if names.SLICE_FINALIZER not in claim.metadata.finalizers:
            return None
        rest = [name for name in claim.metadata.finalizers if name != names.SLICE_FINALIZER]
        patch = {"metadata": {"finalizers": rest, "resourceVersion": claim.metadata.resource_version}}
        try:
            await self._client.patch(ALLOCATION_CLAIMS, claim.name, patch, namespace=claim.metadata.namespace)
        except errors.NotFound:
            return None
        except errors.Conflict:
            return LOOK_AGAIN_SECONDS
        return None


def _out_of_service(node: Node) -> bool:
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)
