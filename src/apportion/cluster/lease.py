"""Leader election on a Lease: at most one process acts as the leader.

Clocks of different machines are never compared. A candidate takes a lease over only after it has seen it unchanged for
its whole duration by its own clock, and writes under compare-and-swap. A leader counts its time from before it sent the
renewal, and stops acting as the leader earlier (`renew_deadline`) than any other process can start (`duration`). A
process that was stopped and resumes thus finds `holds()` false before it sends anything new; what it had already sent
must be caught by preconditions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from apportion.apis.kinds import LEASES
from apportion.apis.meta import ObjectMeta, Wire
from apportion.cluster import clock, errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)


def identity() -> str:
    """In a pod its name: a container that is started again there takes its own lease back without waiting.

    The kubelet has seen the end of the one before, so there are never two. Elsewhere nothing is that sure.
    """
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}_{uuid.uuid4().hex[:8]}"


class LeaseSpec(Wire, omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


@dataclass(frozen=True)
class _Seen:
    """A version of the lease, and when we first saw it by our own clock."""

    lease: Lease
    at: float


class Election:
    """One candidate for one lease; while it leads, the lease has these `annotations`."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry: float = 2.0,
        annotations: Mapping[str, str] | None = None,
        now: clock.Clock = clock.elapsed,
    ) -> None:
        if not retry < renew_deadline < duration:
            raise ValueError("an election needs retry < renew_deadline < duration")
        self._client = client
        self._name, self._namespace, self.identity = name, namespace, identity
        self._duration, self._renew_deadline, self._retry = duration, renew_deadline, retry
        self._annotations = dict(annotations or {})
        self._now = now
        self._seen: _Seen | None = None
        self._renewed: float | None = None

    def holds(self) -> bool:
        """True while no other process can have taken the lease. Check right before every write."""
        return self._renewed is not None and self._now() < self._renewed + self._renew_deadline

    @property
    def leader(self) -> str:
        """The holder of the lease at the last check; empty if there was none."""
        return (self._seen.lease.spec.holder_identity or "") if self._seen else ""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign, and run `lead()` while leading: cancelled when the lease is lost, begun again when won.

        Returns when `lead()` returns; lets its exceptions out. The lease is given back in both cases.
        """
        try:
            while True:
                await self._campaign()
                log.info("became leader as %s", self.identity)
                if await self._lead(lead):
                    return
                log.warning("lost the lease %s to %s", self._name, self.leader or "no other process yet")
        finally:
            await self._release()

    async def _campaign(self) -> None:
        while not await self._attempt():  # noqa: ASYNC110  the lease lives on the server
            await asyncio.sleep(self._retry * random.uniform(0.5, 1.0))  # noqa: S311

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """True if `lead` ended by itself, False if the lease was lost."""
        work = asyncio.ensure_future(lead())
        keep = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({work, keep}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return True
            return False
        finally:
            for task in (work, keep):
                task.cancel()
            await asyncio.gather(work, keep, return_exceptions=True)

    async def _keep(self) -> None:
        """Renew until it fails for too long."""
        while self.holds():
            await asyncio.sleep(self._retry)
            await self._attempt()

    async def _attempt(self) -> bool:
        """Take or renew the lease if we may; never longer than the time left to us."""
        started = self._now()
        try:
            async with asyncio.timeout(self._renew_deadline / 2):
                taken = await self._try()
        except (errors.ClusterError, TimeoutError) as error:
            log.debug("lease %s: %s", self._name, error or "timeout")
            return False
        if taken:
            self._renewed = started
        elif taken is False:
            self._renewed = None
        return bool(taken)

    async def _try(self) -> bool | None:
        """True: ours. False: another process holds it. None: it changed in between, so the holder is unknown.

        In the last case a leader may continue: another process can take the lease only after our own time is over.
        """
        try:
            lease = await self._client.get(LEASES, self._name, namespace=self._namespace, into=Lease)
        except errors.NotFound:
            return await self._create()
        self._look(lease)
        if not self._may_take(lease):
            return False
        try:
            written = await self._client.replace(LEASES, self._mine(lease), namespace=self._namespace, into=Lease)
        except (errors.Conflict, errors.NotFound):
            return None
        self._look(written)
        return True

    async def _create(self) -> bool | None:
        body = self._mine(Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace)))
        try:
            self._look(await self._client.create(LEASES, body, namespace=self._namespace, into=Lease))
        except errors.Conflict:
            return None
        return True

    def _look(self, lease: Lease) -> None:
        if self._seen is None or self._seen.lease.metadata.resource_version != lease.metadata.resource_version:
            self._seen = _Seen(lease, self._now())

    def _may_take(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self.identity:
            return True
        assert self._seen is not None
        patience = max(self._duration, float(lease.spec.lease_duration_seconds or 0))
        return self._now() >= self._seen.at + patience

    def _mine(self, lease: Lease) -> Lease:
        now = clock.micro_timestamp()
        renewal = lease.spec.holder_identity == self.identity
        transitions = lease.spec.lease_transitions or 0
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=max(1, int(self._duration)),
            acquire_time=lease.spec.acquire_time if renewal else now,
            renew_time=now,
            lease_transitions=transitions if renewal else transitions + 1,
        )
        annotations = {**lease.metadata.annotations, **self._annotations}
        return Lease(metadata=msgspec.structs.replace(lease.metadata, annotations=annotations), spec=spec)

    async def _release(self) -> None:
        """Give the lease back at once, so that a successor need not wait; best effort."""
        held, self._renewed = self.holds(), None
        if not held or self._seen is None:
            return
        with contextlib.suppress(errors.ClusterError, TimeoutError):
            async with asyncio.timeout(2):
                try:
                    await self._give_back(self._seen.lease)
                except errors.Conflict:  # by a renewal of ours whose answer we did not wait for
                    lease = await self._client.get(LEASES, self._name, namespace=self._namespace, into=Lease)
                    if lease.spec.holder_identity == self.identity:
                        await self._give_back(lease)

    async def _give_back(self, lease: Lease) -> None:
        body = Lease(
            metadata=lease.metadata,
            spec=LeaseSpec(
                holder_identity="",
                lease_duration_seconds=1,
                renew_time=clock.micro_timestamp(),
                lease_transitions=lease.spec.lease_transitions,
            ),
        )
        await self._client.replace(LEASES, body, namespace=self._namespace)
