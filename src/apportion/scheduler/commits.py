"""Carrying out a statement: its operations are written in waves, claims and volumes before the binding.

Before every write the leader asks its own clock whether the lease still holds. When a write fails or its answer is
lost, the actual state is read from the server, and only then is the assumption kept or undone. Whatever a crash leaves
behind is found by the next leader: a claim under a deterministic name, of a pod that still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import PodUID
from apportion.apis.kinds import ALLOCATION_CLAIMS
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.core.operations import Bind, BindShare, ObjectRef, Operation
from apportion.core.statement import Statement
from apportion.scheduler import metrics
from apportion.scheduler.writers import pod_of, writers

log = logging.getLogger(__name__)

CONCURRENT = 64
TRUTH_RETRY_SECONDS = 0.5


class LeaseLost(Exception):
    """Nothing more may be written: the lease has expired, or is about to be given back."""


class BindResult(Enum):
    """How it ended for a pod."""

    BOUND = "bound"
    GONE = "gone"  # deleted meanwhile, or replaced under its name
    ELSEWHERE = "elsewhere"  # somebody bound it to another node
    FAILED = "failed"  # still waiting: decide again


@dataclass
class CommitResult:
    """`pods` says how it ended for each of them; `existing` is what the statement wanted and the server has now."""

    pods: dict[PodUID, BindResult]
    existing: set[ObjectRef] = field(default_factory=set)
    reason: str = ""

    @property
    def bound(self) -> bool:
        return all(how is BindResult.BOUND for how in self.pods.values())


class Committer:
    """Writes statements, many at a time. Claims live in `namespace`; `holds` says whether the lease does."""

    def __init__(
        self, client: Client, *, namespace: str, holds: Callable[[], bool], concurrent: int = CONCURRENT
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._holds = holds
        self._writers = writers(client, namespace)
        self._slots = asyncio.Semaphore(concurrent)
        self._closed = False

    def close(self) -> None:
        """Begin no further statement; those that are being written go on."""
        self._closed = True

    async def commit(self, statement: Statement) -> CommitResult:
        """Write a statement, all of it as far as the server lets us."""
        async with self._slots:
            if self._closed:
                raise LeaseLost
            with metrics.COMMIT_SECONDS.time():
                return await self._commit(statement)

    async def exists(self, operation: Operation) -> bool:
        """Does the server have what the operation wrote?"""
        return await self._writers[type(operation)].exists(operation)

    async def release(self, claims: list[AllocationClaim]) -> None:
        """Ask for claims to be removed; their node's agent takes the finalizer off."""
        for claim in claims:
            self._check()
            try:
                await self._client.delete(
                    ALLOCATION_CLAIMS, claim.name, namespace=self._namespace, uid=claim.metadata.uid
                )
            except (errors.NotFound, errors.Conflict):
                continue

    async def _commit(self, statement: Statement) -> CommitResult:
        try:
            for wave in statement.waves():
                await _all([self._write(operation) for operation in wave])
        except errors.ClusterError as error:
            log.warning("pod %s to node %s: %s", statement.group.name, _nodes(statement), error)
            return await self._truth(statement, str(error))
        return CommitResult({bind.uid: BindResult.BOUND for bind in statement.binds}, _written(statement))

    async def _write(self, operation: Operation) -> None:
        writer = self._writers.get(type(operation))
        if writer is not None:
            self._check()
            await writer.write(operation)

    async def _truth(self, statement: Statement, reason: str) -> CommitResult:
        """What the server has, asked until it answers or the lease is lost; asking once needs no lease."""
        while True:
            try:
                pods = {bind.uid: await self._bind_result(bind) for bind in statement.binds}
                existing = {ref for operation in statement.operations if (ref := await self._existing_ref(operation))}
            except errors.ClusterError as error:
                log.debug("pod %s: %s", statement.group.name, error)
                if self._closed:
                    raise LeaseLost from error
                self._check()
                await asyncio.sleep(TRUTH_RETRY_SECONDS)
                continue
            return CommitResult(pods, existing, reason)

    async def _existing_ref(self, operation: Operation) -> ObjectRef | None:
        ref = operation.confirmed_by
        return ref if ref is not None and await self.exists(operation) else None

    async def _bind_result(self, bind: Bind | BindShare) -> BindResult:
        pod = await pod_of(self._client, bind.request)
        if pod is None:
            return BindResult.GONE
        if not pod.spec.node_name:
            return BindResult.FAILED
        return BindResult.BOUND if pod.spec.node_name == bind.node else BindResult.ELSEWHERE

    def _check(self) -> None:
        if not self._holds():
            raise LeaseLost


def _written(statement: Statement) -> set[ObjectRef]:
    return {ref for operation in statement.operations if (ref := operation.confirmed_by) is not None}


def _nodes(statement: Statement) -> str:
    return ", ".join(sorted({bind.node for bind in statement.binds}))


async def _all(steps: Sequence[Awaitable[None]]) -> None:
    """All at once; every one is finished before the first error is raised."""
    if len(steps) == 1:
        await steps[0]
        return
    results = await asyncio.gather(*steps, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
