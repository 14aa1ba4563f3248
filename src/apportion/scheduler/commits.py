"""Carrying out a statement: its operations are written in waves, claims and volumes before the binding.

An operation that waits for the end of a pod is written when the view has shown that end; if that takes too long, the
statement has failed. Before every write the leader asks its own clock whether the lease still holds, and the view
whether the agent of the node is still ready: a kubelet without its devices rejects a pod for good. When a write fails
or its answer is lost, the actual state is read from the server, and only then is the assumption kept or undone.
Whatever a crash leaves behind is found by the next leader: a claim under a deterministic name, of a pod that still
waits, or a pod that terminates.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.kinds import ALLOCATION_CLAIMS
from apportion.apis.request import Request
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.core.operations import Bind, BindShare, ClaimSlice, Evict, ObjectRef, Operation
from apportion.core.statement import Statement, events_before
from apportion.scheduler import metrics
from apportion.scheduler.place_notes import PlaceNotes
from apportion.scheduler.pod_ends import PodEnds
from apportion.scheduler.writers import FLEET_ONLY, EvictionRefused, NominationWriter, check, pod_of, writers
from apportion.view.assumptions import Assumptions

log = logging.getLogger(__name__)

CONCURRENT = 64
TRUTH_RETRY_SECONDS = 0.5
POD_END_SECONDS = 300.0  # for pods that were evicted; most have a grace period of 30 s


class LeaseLost(Exception):
    """Nothing more may be written: the lease has expired, or is about to be given back."""


class PodStays(Exception):
    """A pod that a statement waits for has not terminated in time."""


class NotWanted(Exception):
    """The group needs nobody's place any more."""


class AgentNotReady(Exception):
    """The agent of a node was ready when the statement was decided, and is not any more."""


class BindResult(Enum):
    """How it ended for a pod."""

    BOUND = "bound"  # or handed over to the binder
    GONE = "gone"  # deleted meanwhile, or replaced under its name
    ELSEWHERE = "elsewhere"  # somebody bound it to another node
    FAILED = "failed"  # still waiting: decide again


@dataclass
class CommitResult:
    """`pods` says how it ended for each of them; `existing` is what the statement wanted and the server has now."""

    pods: dict[PodUID, BindResult]
    existing: set[ObjectRef] = field(default_factory=set)
    reason: str = ""  # why it was not carried out in full
    refused: frozenset[PodUID] = frozenset()  # pods that a disruption budget protects
    wanted: bool = True  # False: it was not carried out because nobody needs it any more

    @property
    def complete(self) -> bool:
        """Everything was written."""
        return not self.reason

    @property
    def bound(self) -> bool:
        return all(how is BindResult.BOUND for how in self.pods.values())


class Committer:
    """Writes statements, many at a time. Claims live in `namespace`; `holds` says whether the lease does, `ready`
    whether the agent of a node makes slices now, and `group_name` which PodGroup a pod names once it is bound.
    `check_budgets` raises EvictionRefused before several pods are evicted if one of them must not be. `nominated` is
    the nominated node of a pod, as we have seen it."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        holds: Callable[[], bool],
        ready: Callable[[NodeName], bool],
        pod_ends: PodEnds,
        places: PlaceNotes | None = None,
        nominated: Callable[[PodUID], str] = lambda _: "",
        check_budgets: Callable[[Sequence[Evict]], Awaitable[None]] | None = None,
        group_name: Callable[[Request], str | None] = lambda _: None,
        pod_end_seconds: float = POD_END_SECONDS,
        concurrent: int = CONCURRENT,
    ) -> None:
        self._client = client
        self._pod_ends = pod_ends
        self._pod_end_seconds = pod_end_seconds
        self._namespace = namespace
        self._holds = holds
        self._ready = ready
        self._check_budgets = check_budgets
        self._nominations = NominationWriter(client, nominated)
        self._writers = writers(
            client, namespace, self._nominations, places or PlaceNotes(client, namespace), group_name
        )
        self._slots = asyncio.Semaphore(concurrent)
        self._closed = False

    def close(self) -> None:
        """Begin no further statement; those that are being written go on."""
        self._closed = True

    async def commit(self, statement: Statement, *, wanted: Callable[[], bool] = lambda: True) -> CommitResult:
        """Write a statement, all of it as far as the server lets us. Nobody is evicted if it is not `wanted` any more.

        Raises LedgerError, with nothing written, for a statement that can never be written.
        """
        check(statement.operations, self._writers)
        waves = deque(statement.waves())
        try:
            while waves:
                await self._wait_before(waves[0])
                await self._write_until_next_wait(waves, wanted)
        except (errors.ClusterError, PodStays, AgentNotReady, EvictionRefused, NotWanted) as error:
            log.warning("pod %s to node %s: %s", statement.group.name, _nodes(statement), error)
            result = await self._truth(statement, str(error) or type(error).__name__)
            if isinstance(error, EvictionRefused):
                result.refused = error.uids
            result.wanted = not isinstance(error, NotWanted)
            return result
        return CommitResult({bind.uid: BindResult.BOUND for bind in statement.binds}, _written(statement))

    async def exists(self, operation: Operation) -> bool:
        """Does the server have what the operation wrote?"""
        check((operation,), self._writers)
        return await self._writers[type(operation)].exists(operation)

    async def withdraw(self, nominations: Iterable[tuple[Request, NodeName]]) -> None:
        """Take the names of nodes off pods whose reservation has ended."""
        for request, node in nominations:
            self._check()
            with suppress(errors.ClusterError):  # it says nothing any more once the pod is bound
                await self._nominations.withdraw(request, node)

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

    async def _wait_before(self, wave: tuple[Operation, ...]) -> None:
        """Without a slot: others are written meanwhile."""
        uids = [PodUID(ref.name) for ref in events_before(wave)]
        late = await self._pod_ends.wait(uids, self._pod_end_seconds) if uids else None
        if late is not None:
            log.warning("pod with uid %s has not terminated", late)
            raise PodStays(f"a pod that makes room has not terminated within {self._pod_end_seconds:.0f} s")

    async def _write_until_next_wait(self, waves: deque[tuple[Operation, ...]], wanted: Callable[[], bool]) -> None:
        async with self._slots:
            if self._closed:
                raise LeaseLost
            with metrics.COMMIT_SECONDS.time():
                await self._write_all(waves.popleft(), wanted)
                while waves and not events_before(waves[0]):
                    await self._write_all(waves.popleft(), wanted)

    async def _write_all(self, wave: tuple[Operation, ...], wanted: Callable[[], bool]) -> None:
        evictions = [operation for operation in wave if isinstance(operation, Evict)]
        for_others = len(evictions) > 1 and evictions[0].after  # a single one is refused by itself
        if for_others and self._check_budgets is not None:
            await self._check_budgets(evictions)
        if evictions and not wanted():
            raise NotWanted("the pods have another place by now, or need none")
        await _all([self._write(operation) for operation in wave if not isinstance(operation, FLEET_ONLY)])

    async def _write(self, operation: Operation) -> None:
        self._check()
        if isinstance(operation, ClaimSlice | Bind) and operation.request.slices and not self._ready(operation.node):
            # Whole GPUs are another matter: NVIDIA's device plugin can serve them where our agent is not ready.
            raise AgentNotReady(f"the agent of node {operation.node} is not ready any more")
        await self._writers[type(operation)].write(operation)

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
            handed_over = isinstance(bind, BindShare) and await self.exists(bind)
            return BindResult.BOUND if handed_over else BindResult.FAILED
        return BindResult.BOUND if pod.spec.node_name == bind.node else BindResult.ELSEWHERE

    def _check(self) -> None:
        if not self._holds():
            raise LeaseLost


async def carried_out(committer: Committer, assumptions: Assumptions, statement: Statement) -> CommitResult | None:
    """Write a statement that was applied to the fleet; what was not written is undone. None if the lease is lost."""
    assumptions.decided(statement)
    try:
        result = await committer.commit(statement)
    except LeaseLost:
        assumptions.undo(statement)
        return None
    if result.complete:
        assumptions.written(statement)
    else:
        assumptions.undo(statement, result.existing)
    return result


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
    refused = [result for result in results if isinstance(result, EvictionRefused)]
    if len(refused) > 1:
        raise EvictionRefused(str(refused[0]), frozenset().union(*(each.uids for each in refused)))
    for result in results:
        if isinstance(result, BaseException):
            raise result
