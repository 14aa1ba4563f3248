"""The claims of this node: read from a local copy, written as patches.

Custom resources cannot be selected by a field of their spec, so the copy holds the claims of all nodes
and an index picks ours.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from apportion.apis import kinds, names
from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import ClaimName, DeviceUUID, NodeName, PodUID
from apportion.apis.meta import Condition, to_wire
from apportion.apis.placements import SlicePlacement
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.pending_writes import PendingWrites, version_of

_INDEX = re.compile(r"-(\d+)$")
BY_NODE, BY_POD = "node", "pod"


class ClaimStore:
    def __init__(self, client: Client, node: NodeName, namespace: str) -> None:
        self._client = client
        self._node = node
        self._namespace = namespace
        self.informer = Informer(
            client,
            kinds.ALLOCATION_CLAIMS,
            into=AllocationClaim,
            namespace=namespace,
            indexes={BY_NODE: lambda claim: [claim.spec.nodename], BY_POD: lambda claim: [claim.spec.pod_ref.uid]},
        )
        self._pending: PendingWrites[AllocationClaim] = PendingWrites()
        self.informer.on_change(self._shown)

    def on_change(self, listener: Callable[[AllocationClaim | None, AllocationClaim | None], None]) -> None:
        """Changes of claims of this node."""

        def ours(old: AllocationClaim | None, new: AllocationClaim | None) -> None:
            claim = new or old
            if claim is not None and claim.spec.nodename == self._node:
                listener(old, new)

        self.informer.on_change(ours)

    def all(self) -> list[AllocationClaim]:
        return self._known(self.informer.indexed(BY_NODE, self._node))

    def of_pod(self, pod_uid: PodUID) -> list[AllocationClaim]:
        found = self.informer.indexed(BY_POD, pod_uid)
        return self._known([claim for claim in found if claim.spec.nodename == self._node])

    def get(self, name: ClaimName) -> AllocationClaim | None:
        found = self.informer.get(name, self._namespace)
        return next(iter(self._known([found])), None) if found else None

    async def set_state(
        self, claim: AllocationClaim, state: str, *, uuid: DeviceUUID | None = None, message: str | None = None
    ) -> None:
        """Write the state with its condition, unless it is there already.

        A state that is reached without a problem (no `message`) ends that the claim is lost.
        """
        current = self.get(claim.name) or claim
        wanted_uuid = current.status.mig_uuid if uuid is None else uuid
        condition = claims.state_condition(
            state, now=clock.timestamp(), generation=current.metadata.generation, message=message
        )
        replaced = {claims.STATE_CONDITION} if message else {claims.STATE_CONDITION, claims.LOST_CONDITION}
        same = current.state == state and current.status.mig_uuid == wanted_uuid and _holds(current, condition)
        if same and not (current.lost and claims.LOST_CONDITION in replaced):
            return
        others = [entry for entry in current.status.conditions if entry.type not in replaced]
        status: dict[str, Any] = {
            "state": state,
            "migUUID": wanted_uuid,
            "conditions": [to_wire(entry) for entry in (*others, condition)],
        }
        await self._patch(claim.name, {"status": status}, subresource="status")

    async def mark_lost(self, claim: AllocationClaim, why: str) -> None:
        """Write on the claim that its node has no placement for it, unless that is there already."""
        current = self.get(claim.name) or claim
        if current.lost == why:
            return
        lost = claims.lost_condition(why, now=clock.timestamp(), generation=current.metadata.generation)
        others = [entry for entry in current.status.conditions if entry.type != claims.LOST_CONDITION]
        status = {"conditions": [to_wire(entry) for entry in (*others, lost)]}
        await self._patch(claim.name, {"status": status}, subresource="status")

    async def move(self, claim: AllocationClaim, place: SlicePlacement) -> AllocationClaim:
        """Give the claim another place; fails if anybody changed the claim meanwhile."""
        spec = {"gpuUUID": place.gpu, "migPlacement": {"start": place.start, "size": place.size}}
        version = {"resourceVersion": claim.metadata.resource_version}
        return await self._patch(claim.name, {"metadata": version, "spec": spec})

    async def remove(self, claim: AllocationClaim) -> None:
        """Delete the claim and remove its finalizer; safe to repeat."""
        with contextlib.suppress(errors.NotFound):
            await self._remove(claim)
        if self.informer.get(claim.name, self._namespace) is not None:
            self._pending.removed(claim.name, claim.metadata.uid)

    async def _remove(self, claim: AllocationClaim) -> None:
        current = claim
        if not claim.metadata.deleting:
            answer = await self._client.delete(
                kinds.ALLOCATION_CLAIMS, claim.name, namespace=self._namespace, uid=claim.metadata.uid
            )
            if answer.get("kind") != kinds.ALLOCATION_CLAIMS.kind:
                return  # it had no finalizer
            current = msgspec.convert(answer, AllocationClaim)
        await self._drop_finalizer(current)

    async def _drop_finalizer(self, claim: AllocationClaim) -> None:
        try:
            await self._without_finalizer(claim)
        except errors.Conflict:  # it was changed since we read it
            current = await self._client.get(
                kinds.ALLOCATION_CLAIMS, claim.name, namespace=self._namespace, into=AllocationClaim
            )
            if current.metadata.uid == claim.metadata.uid:
                await self._without_finalizer(current)

    async def _without_finalizer(self, claim: AllocationClaim) -> None:
        if names.SLICE_FINALIZER in claim.metadata.finalizers:
            left = [entry for entry in claim.metadata.finalizers if entry != names.SLICE_FINALIZER]
            version = claim.metadata.resource_version
            await self._patch(claim.name, {"metadata": {"finalizers": left, "resourceVersion": version}})

    async def _patch(self, name: ClaimName, patch: dict[str, Any], subresource: str | None = None) -> AllocationClaim:
        answer = await self._client.patch(
            kinds.ALLOCATION_CLAIMS, name, patch, namespace=self._namespace, subresource=subresource
        )
        written = msgspec.convert(answer, AllocationClaim)
        seen = self.informer.get(name, self._namespace)
        if seen is not None and version_of(written) > version_of(seen):
            self._pending.written(name, written)
        return written

    def _known(self, found: list[AllocationClaim]) -> list[AllocationClaim]:
        """The copy's claims as they are now: with what we wrote, unless others have written since."""
        latest = [self._pending.latest(claim.name, claim) for claim in found]
        return in_order([claim for claim in latest if claim is not None])

    def _shown(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        claim = new or old
        if claim is not None:
            self._pending.shown(claim.name, new)


def place_of(claim: AllocationClaim) -> SlicePlacement:
    spec = claim.spec
    return SlicePlacement(DeviceUUID(spec.gpu_uuid), spec.profile, spec.mig_placement.start, spec.mig_placement.size)


def in_order(found: list[AllocationClaim]) -> list[AllocationClaim]:
    """By the container that names them, then by their number: the order in which devices are listed."""
    return sorted(found, key=_rank)


def _rank(claim: AllocationClaim) -> tuple[str, int]:
    match = _INDEX.search(claim.name)
    return (claim.name[: match.start()], int(match[1])) if match else (claim.name, 0)


def _holds(claim: AllocationClaim, wanted: Condition) -> bool:
    return any(
        (entry.type, entry.status, entry.reason, entry.message)
        == (wanted.type, wanted.status, wanted.reason, wanted.message)
        for entry in claim.status.conditions
    )
