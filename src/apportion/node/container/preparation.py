"""PreStartContainer: everything that one container's slices need, done before it starts.

The kubelet calls once per resource, in any order, before every start. Each call prepares the whole
container, so whichever comes first does the work and the others find it done. Every step can be the last
one before a crash, and doing all of it again ends in the same state:

    place recorded -> claim `processing` -> slice made -> CDI files -> claim `inUse`
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from apportion.apis import profiles
from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import ClaimName, DeviceUUID, PodUID
from apportion.apis.kubelet import deviceplugin_pb2 as wire
from apportion.cluster.errors import ClusterError
from apportion.node.cluster.claim_store import ClaimStore
from apportion.node.container import cdi
from apportion.node.container.cdi import CdiFolder
from apportion.node.container.last_container import LastContainer
from apportion.node.hardware import partitioner
from apportion.node.hardware.claim_placement import ClaimPlacement
from apportion.node.hardware.partitioner import Partitioner, PartitionError
from apportion.node.hardware.slicing import Slicing
from apportion.node.kubelet.allocations import Allocations, Holder, Holding
from apportion.node.kubelet.prestart_errors import NoClaim, NotMade, PrestartError
from apportion.node.locks import Locks

POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


def allocate(resource: str, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
    """The answer to Allocate: a CDI name that PreStartContainer will define."""
    name = cdi.qualified(cdi.device_name(resource, ids))
    return wire.ContainerAllocateResponse(cdi_devices=[wire.CDIDevice(name=name)])


class Preparation:
    def __init__(
        self,
        *,
        driver: Partitioner,
        allocations: Allocations,
        store: ClaimStore,
        last_container: LastContainer,
        slicing: Slicing,
        placement: ClaimPlacement,
        folder: CdiFolder,
        locks: Locks,
        patience: float,
        answer_within: float,
    ) -> None:
        self._driver = driver
        self._allocations = allocations
        self._store = store
        self._last_container = last_container
        self._slicing = slicing
        self._placement = placement
        self._folder = folder
        self._locks = locks
        self._patience = patience
        self._answer_within = answer_within
        self._running: dict[tuple[PodUID, str], asyncio.Task[None]] = {}

    async def prepare(self, resource: str, ids: Sequence[str]) -> None:
        """Prepare the container that holds these ids. The work continues if the caller stops waiting."""
        holder = await self._allocations.holder(resource, ids, patience=self._patience)
        container = await self._last_container.of(holder.pod_uid, holder.containers)
        key = (holder.pod_uid, container)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._prepare(holder, container), name=f"prepare-{key}")
            task.add_done_callback(lambda done: self._done(key, done))
        try:
            async with asyncio.timeout(self._answer_within):
                await asyncio.shield(task)
        except TimeoutError:
            if task.done():  # the work itself has timed out
                raise
            text = f"not ready after {self._answer_within:g} s: the GPU or the API is slow; the work continues"
            raise NotMade(f"pod {holder.pod_uid} container {container}: {text}") from None

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _done(self, key: tuple[PodUID, str], task: asyncio.Task[None]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # raised in callers that still wait; the claims show it in any case

    async def _prepare(self, holder: Holder, container: str) -> None:
        async with self._locks.pod(holder.pod_uid):
            found = await self._claims(holder, container)
            try:
                uuids = await self._slices(found)
                await self._describe(holder, container, found, uuids)
                for claim in found:
                    await self._store.set_state(claim, claims.IN_USE, uuid=uuids[claim.name])
            except (PartitionError, ClusterError, OSError) as error:
                raise NotMade(await self._tell(found, error)) from error
            except PrestartError as problem:
                await self._tell(found, problem)
                raise
        log.info("pod %s container %s: prepared slices: %d", holder.pod_uid, container, len(found))

    # Which claims

    async def _claims(self, holder: Holder, container: str) -> list[AllocationClaim]:
        """The container's claims, one for each slice that the kubelet counted for it."""
        end = asyncio.get_running_loop().time() + self._patience
        while True:
            found = [c for c in self._store.of_pod(holder.pod_uid) if container in c.spec.containers]
            missing = _mismatch(holder.of(container), found)
            deleting = next((claim.name for claim in found if claim.metadata.deleting), None)
            if not missing and not deleting:
                return found
            if asyncio.get_running_loop().time() >= end:
                text = missing or f"claim {deleting} is being deleted"
                raise NoClaim(f"pod {holder.pod_uid} container {container}: {text}")
            await asyncio.sleep(POLL_SECONDS)

    # The steps

    async def _slices(self, found: list[AllocationClaim]) -> dict[ClaimName, DeviceUUID]:
        uuids: dict[ClaimName, DeviceUUID] = {}
        for claim in found:
            entry = await self._placement.secure(claim)
            uuid = await self._slicing.uuid_of(entry)
            if not uuid:
                await self._store.set_state(claim, claims.PROCESSING, uuid=DeviceUUID(""))
                uuid = await self._placement.make(entry, claim)
            uuids[claim.name] = uuid
        return uuids

    async def _describe(
        self, holder: Holder, container: str, found: list[AllocationClaim], uuids: dict[ClaimName, DeviceUUID]
    ) -> None:
        """One CDI file per resource, each with the whole list: a runtime applies them in any order."""
        listed = [uuids[claim.name] for claim in found]
        devices = await partitioner.device_nodes(self._driver, listed)
        for holding in holder.of(container):
            if await self._last_container.of(holder.pod_uid, holding.containers) != container:
                continue  # shared with a later container, whose own call writes it
            owner = cdi.Owner(holder.pod_uid, holding.containers)
            name = cdi.device_name(holding.resource, holding.ids)
            mounts = await partitioner.mounts(self._driver, name, listed)
            self._folder.write(name, owner, self._driver.environment(listed), mounts=mounts, devices=devices)

    async def _tell(self, found: list[AllocationClaim], error: Exception) -> str:
        """Report an error on the claims; the kubelet gets the same text."""
        text = str(error)
        for claim in found:
            state = (self._store.get(claim.name) or claim).state
            if state == claims.IN_USE:
                continue
            try:
                await self._store.set_state(claim, state, message=f"Allocation is {state}: {text}")
            except ClusterError as lost:
                log.warning("the condition of claim %s cannot be written: %s", claim.name, lost)
        return text


def _mismatch(holdings: list[Holding], found: list[AllocationClaim]) -> str:
    for holding in holdings:
        profile = profiles.slice_profile(holding.resource)
        claimed = sum(claim.spec.profile == profile for claim in found)
        if claimed != len(holding.ids):
            return f"the kubelet allocated {len(holding.ids)} x {profile}, but there are {claimed} claims"
    return ""
