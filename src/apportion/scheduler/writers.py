"""How each kind of operation is written to the API server, and how to ask whether it is there.

Each write is safe to repeat. A write that fails because of somebody else's object raises; the committer then reads the
actual state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from apportion.apis import names
from apportion.apis.custom_resources.claims import AllocationClaim, PodReference, new_claim
from apportion.apis.errors import LedgerError
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.kinds import ALLOCATION_CLAIMS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.apis.volumes import SELECTED_NODE, PersistentVolume
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.core.operations import (
    Bind,
    BindShare,
    BindVolume,
    ClaimSlice,
    Evict,
    KeepPlaces,
    Operation,
    Reserve,
    Unreserve,
)
from apportion.scheduler.place_notes import PlaceNotes
from apportion.scheduler.sharing.bind_requests import BindRequestWriter

FLEET_ONLY: tuple[type[Operation], ...] = (Unreserve,)  # nothing of them is on the server
O_contra = TypeVar("O_contra", bound=Operation, contravariant=True)


class Writer(Protocol, Generic[O_contra]):
    """For one kind of operation."""

    async def write(self, operation: O_contra) -> None: ...

    async def exists(self, operation: O_contra) -> bool:
        """The server has it, as the operation wants it."""
        ...


def writers(
    client: Client,
    namespace: str,
    nominations: NominationWriter,
    places: PlaceNotes,
    group_name: Callable[[Request], str | None] = lambda _: None,
) -> dict[type[Operation], Writer[Any]]:
    """One writer for each kind of operation; claims live in `namespace`."""
    return {
        ClaimSlice: ClaimWriter(client, namespace),
        BindVolume: VolumeWriter(client),
        Bind: BindingWriter(client, group_name),
        BindShare: BindRequestWriter(client, group_name),
        Evict: EvictionWriter(client),
        Reserve: nominations,
        KeepPlaces: places,
    }


def check(operations: Iterable[Operation], known: Mapping[type[Operation], object]) -> None:
    """Raises LedgerError if one of them cannot be written, before any of them is."""
    for operation in operations:
        kind = type(operation)
        if kind not in known and kind not in FLEET_ONLY:
            raise LedgerError("NotWritable", f"{kind.__name__}: there is no writer for it")


class ClaimWriter:
    """Slices are claimed under names that follow from the pod, so a second attempt finds the first one's claim.

    Another leader may have written one under the same name for another place; that one is not used.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def write(self, operation: ClaimSlice) -> None:
        wanted = self._claim(operation)
        try:
            await self._client.create(ALLOCATION_CLAIMS, wanted, namespace=self._namespace, into=Bare)
        except errors.AlreadyExists:
            claim = await self._get(operation)
            if claim.spec != wanted.spec or claim.metadata.deleting:
                raise

    async def exists(self, operation: ClaimSlice) -> bool:
        try:
            claim = await self._get(operation)
        except errors.NotFound:
            return False
        return claim.spec == self._claim(operation).spec

    async def _get(self, operation: ClaimSlice) -> AllocationClaim:
        return await self._client.get(
            ALLOCATION_CLAIMS, operation.name, namespace=self._namespace, into=AllocationClaim
        )

    def _claim(self, operation: ClaimSlice) -> AllocationClaim:
        placement, request = operation.placement, operation.request
        return new_claim(
            name=operation.name,
            namespace=self._namespace,
            profile=placement.profile,
            gpu_uuid=placement.gpu,
            start=placement.start,
            size=placement.size,
            nodename=operation.node,
            pod=PodReference(namespace=request.namespace, name=request.name, uid=request.uid),
            containers=list(operation.containers),
        )


class VolumeWriter:
    """A claim is provisioned once it names a node; a ready-made volume is its own once the volume names the claim.

    The volume controller then binds the two while the kubelet waits for them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, operation: BindVolume) -> None:
        namespace = operation.request.namespace
        if not operation.volume:
            patch: dict[str, Any] = {"metadata": {"annotations": {SELECTED_NODE: operation.node}}}
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, operation.volume_claim, patch, namespace=namespace)
            return
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        reference |= {"namespace": namespace, "name": operation.volume_claim, "uid": operation.volume_claim_uid}
        patch = {"metadata": {"resourceVersion": operation.volume_version}, "spec": {"claimRef": reference}}
        await self._client.patch(PERSISTENT_VOLUMES, operation.volume, patch)

    async def exists(self, operation: BindVolume) -> bool:
        namespace = operation.request.namespace
        try:
            if not operation.volume:
                claim = await self._client.get(
                    PERSISTENT_VOLUME_CLAIMS, operation.volume_claim, namespace=namespace, into=Bare
                )
                return claim.metadata.annotations.get(SELECTED_NODE) == operation.node
            volume = await self._client.get(PERSISTENT_VOLUMES, operation.volume, into=PersistentVolume)
        except errors.NotFound:
            return False
        reference = volume.spec.claim_ref
        return reference is not None and (reference.namespace, reference.name) == (namespace, operation.volume_claim)


class BindingWriter:
    """`group_name` is the PodGroup that a pod names from now on, None if there is nothing to add."""

    def __init__(self, client: Client, group_name: Callable[[Request], str | None]) -> None:
        self._client = client
        self._group_name = group_name

    async def write(self, operation: Bind) -> None:
        request = operation.request
        name = self._group_name(request)
        annotations = {names.POD_GROUP: name} if name is not None else None
        await self._client.bind(request.namespace, request.name, request.uid, operation.node, annotations=annotations)

    async def exists(self, operation: Bind) -> bool:
        pod = await pod_of(self._client, operation.request)
        return pod is not None and pod.spec.node_name == operation.node


class EvictionRefused(Exception):
    """Disruption budgets protect these pods."""

    def __init__(self, why: str, uids: Iterable[PodUID]) -> None:
        super().__init__(why)
        self.uids = frozenset(uids)


class EvictionWriter:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, operation: Evict) -> None:
        request = operation.request
        try:
            await self._client.evict(request.namespace, request.name, uid=request.uid)
        except errors.NotFound:
            return
        except errors.TooManyRequests as error:
            raise EvictionRefused(f"pod {request.key}: {error}", (request.uid,)) from error

    async def exists(self, operation: Evict) -> bool:
        pod = await pod_of(self._client, operation.request)
        return pod is None or pod.metadata.deleting


class NominationWriter:
    """A reservation is written down as the pod's nominated node, unless somebody else has written another one: of two
    leaders that plan for one pod, only the first evicts anybody. `nominated` is the node that we have seen there."""

    def __init__(self, client: Client, nominated: Callable[[PodUID], str] = lambda _: "") -> None:
        self._client = client
        self._nominated = nominated

    async def write(self, operation: Reserve) -> None:
        seen = self._nominated(operation.request.uid)
        try:
            await self._replace(operation.request, seen, operation.node)
        except errors.Invalid:
            pod = await pod_of(self._client, operation.request)
            if pod is None or pod.status.nominated_node_name not in ("", operation.node, seen):
                raise
            await self._replace(operation.request, pod.status.nominated_node_name, operation.node)

    async def exists(self, operation: Reserve) -> bool:
        pod = await pod_of(self._client, operation.request)
        return pod is not None and pod.status.nominated_node_name == operation.node

    async def withdraw(self, request: Request, node: NodeName) -> None:
        """Raises Invalid if there is another one by now."""
        await self._replace(request, node, "")

    async def _replace(self, request: Request, before: str, after: str) -> None:
        path = "/status/nominatedNodeName"
        steps: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": request.uid},
            {"op": "test", "path": path, "value": before or None},
            {"op": "add", "path": path, "value": after} if after else {"op": "remove", "path": path},
        ]
        await self._client.patch(
            PODS, request.name, steps, namespace=request.namespace, how=PatchType.json, subresource="status"
        )


async def pod_of(client: Client, request: Request) -> Pod | None:
    """The very pod, None if it is gone or another one has its name."""
    try:
        pod = await client.get(PODS, request.name, namespace=request.namespace, into=Pod)
    except errors.NotFound:
        return None
    return pod if pod.metadata.uid == request.uid else None
