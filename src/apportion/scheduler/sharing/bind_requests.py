"""BindRequests: how a pod with a share is handed over to the binder.

A request has the name of its pod, so there is at most one. It goes with its pod, and stays unchanged when the pod is
bound. A request that failed, or that belonged to an earlier pod of the same name, is replaced. The new one says on
which nodes requests for the pod have failed: the next leader has to know that too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from apportion.apis import names
from apportion.apis.custom_resources.bind_requests import BindRequest, BindRequestSpec, ReceivedGpu
from apportion.apis.identities import NodeName
from apportion.apis.kinds import BIND_REQUESTS
from apportion.apis.meta import Bare, ObjectMeta, OwnerReference
from apportion.apis.request import Request
from apportion.apis.shares import decimal
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.core.operations import BindShare

REMEMBERED_NODES = 32  # of a pod; those where it could not be bound for longest are forgotten


class BindRequestWriter:
    """`group_name` is the PodGroup that a pod names once it is bound, None if there is nothing to add."""

    def __init__(self, client: Client, group_name: Callable[[Request], str | None]) -> None:
        self._client = client
        self._group_name = group_name

    async def write(self, operation: BindShare) -> None:
        wanted = self._request(operation)
        try:
            await self._create(wanted)
        except errors.AlreadyExists:
            found = await self._get(operation.request)
            if found is None or found.spec.pod_uid != wanted.spec.pod_uid:
                await self._replace(found, wanted)
            elif found.failed:
                await self._replace(found, self._request(operation, found.failed_nodes))
            elif found.spec != wanted.spec:
                raise

    async def exists(self, operation: BindShare) -> bool:
        found = await self._get(operation.request)
        return found is not None and not found.failed and found.spec == self._request(operation).spec

    async def _create(self, wanted: BindRequest) -> None:
        await self._client.create(BIND_REQUESTS, wanted, namespace=wanted.metadata.namespace, into=Bare)

    async def _replace(self, found: BindRequest | None, wanted: BindRequest) -> None:
        """The request failed, or is that of an earlier pod of the same name."""
        if found is not None:
            meta = found.metadata
            with suppress(errors.NotFound):
                await self._client.delete(BIND_REQUESTS, meta.name, namespace=meta.namespace, uid=meta.uid)
        await self._create(wanted)

    async def _get(self, request: Request) -> BindRequest | None:
        try:
            return await self._client.get(BIND_REQUESTS, request.name, namespace=request.namespace, into=BindRequest)
        except errors.NotFound:
            return None

    def _request(self, operation: BindShare, failed_nodes: Sequence[NodeName] = ()) -> BindRequest:
        request = operation.request
        group = self._group_name(request)
        annotations = {names.POD_GROUP: group} if group is not None else {}
        if failed_nodes:
            annotations[names.FAILED_NODES] = ",".join(failed_nodes[-REMEMBERED_NODES:])
        owner = OwnerReference(api_version="v1", kind="Pod", name=request.name, uid=request.uid)
        return BindRequest(
            metadata=ObjectMeta(
                name=request.name,
                namespace=request.namespace,
                annotations=annotations,
                owner_references=[owner],
            ),
            spec=BindRequestSpec(
                pod_name=request.name,
                pod_uid=request.uid,
                selected_node=operation.node,
                selected_gpu_groups=list(operation.groups),
                selected_devices=[gpu for gpu, _ in operation.shares],
                received_resource_type=names.FRACTION,
                received_gpu=_received(operation),
            ),
        )


def _received(operation: BindShare) -> ReceivedGpu:
    share = operation.request.share
    assert share is not None
    portion = decimal(share.milli) if share.milli is not None else ""
    return ReceivedGpu(count=len(operation.shares), portion=portion, memory_mib=operation.shares[0][1])
