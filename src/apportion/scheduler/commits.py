"""Carrying out a plan: claims first, then the binding, each write safe to repeat.

Before every write the leader asks its own clock whether the lease still holds. When a write fails or its
answer is lost, the server is asked what is true, and only then is the assumption kept or taken back.
Whatever a crash leaves behind is found by the next leader: a claim under a deterministic name, of a pod
that still waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from apportion.apis.claims import AllocationClaim, PodReference, new_claim
from apportion.apis.kinds import ALLOCATION_CLAIMS, PODS
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.core.plans import Bind, ClaimSlice, Plan
from apportion.scheduler import metrics
from apportion.scheduler.storage import Step

log = logging.getLogger(__name__)

CONCURRENT = 64
TRUTH_RETRY_SECONDS = 0.5


class LeaseLost(Exception):
    """Nothing more may be written."""


class Outcome(Enum):
    """How it ended for the pod."""

    BOUND = "bound"
    GONE = "gone"  # deleted meanwhile, or replaced under its name
    ELSEWHERE = "elsewhere"  # somebody bound it to another node
    FAILED = "failed"  # still waiting: decide again


@dataclass
class Result:
    """`standing` are claims of the plan that are on the server now, as the plan wants them.

    Another leader may have written one under the same name for another place; that one is not ours to count on.
    """

    outcome: Outcome
    standing: set[str] = field(default_factory=set)
    reason: str = ""


class Committer:
    """Writes plans, many at a time."""

    def __init__(
        self, client: Client, *, namespace: str, holds: Callable[[], bool], concurrent: int = CONCURRENT
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._holds = holds
        self._slots = asyncio.Semaphore(concurrent)

    async def commit(self, plan: Plan, volumes: list[Step]) -> Result:
        """Carry the plan of one pod out. The API server gives new claims their first state."""
        async with self._slots:
            with metrics.COMMIT_SECONDS.time():
                return await self._commit(plan, volumes)

    async def let_go(self, claims: list[AllocationClaim]) -> None:
        """Ask for claims to be removed; their node's agent takes the finalizer off."""
        for claim in claims:
            self._check()
            try:
                await self._client.delete(
                    ALLOCATION_CLAIMS, claim.name, namespace=self._namespace, uid=claim.metadata.uid
                )
            except (errors.NotFound, errors.Conflict):
                continue

    async def _commit(self, plan: Plan, volumes: list[Step]) -> Result:
        (bind,) = (operation for operation in plan.operations if isinstance(operation, Bind))
        try:
            steps = [self._claim(operation) for operation in plan.claims]
            steps += [self._prepare(step) for step in volumes]
            await _all(steps)
            self._check()
            await self._client.bind(bind.namespace, bind.name, bind.uid, bind.node)
        except errors.ClusterError as error:
            log.warning("pod %s/%s to node %s: %s", bind.namespace, bind.name, bind.node, error)
            return await self._truth(plan, bind, str(error))
        return Result(Outcome.BOUND, {claim.name for claim in plan.claims})

    async def _claim(self, operation: ClaimSlice) -> None:
        """Create the claim, or recognise it if an earlier attempt got that far."""
        wanted = _wanted(operation)
        wanted.metadata.namespace = self._namespace
        self._check()
        try:
            await self._client.create(ALLOCATION_CLAIMS, wanted, namespace=self._namespace)
        except errors.AlreadyExists:
            claim = await self._client.get(
                ALLOCATION_CLAIMS, operation.name, namespace=self._namespace, into=AllocationClaim
            )
            if claim.spec != wanted.spec or claim.metadata.deleting:
                raise

    async def _prepare(self, step: Step) -> None:
        self._check()
        await self._client.patch(step.kind, step.name, step.patch, namespace=step.namespace)

    async def _truth(self, plan: Plan, bind: Bind, reason: str) -> Result:
        """What the server has, asked until it answers or the lease is lost."""
        while True:
            self._check()
            try:
                outcome = await self._outcome(bind)
                standing = {claim.name for claim in plan.claims if await self._stands(claim)}
            except errors.ClusterError as error:
                log.debug("pod %s/%s: %s", bind.namespace, bind.name, error)
                await asyncio.sleep(TRUTH_RETRY_SECONDS)
                continue
            return Result(outcome, standing, reason)

    async def _outcome(self, bind: Bind) -> Outcome:
        try:
            pod = await self._client.get(PODS, bind.name, namespace=bind.namespace, into=Pod)
        except errors.NotFound:
            return Outcome.GONE
        if pod.metadata.uid != bind.uid:
            return Outcome.GONE
        if not pod.spec.node_name:
            return Outcome.FAILED
        return Outcome.BOUND if pod.spec.node_name == bind.node else Outcome.ELSEWHERE

    async def _stands(self, operation: ClaimSlice) -> bool:
        try:
            claim = await self._client.get(
                ALLOCATION_CLAIMS, operation.name, namespace=self._namespace, into=AllocationClaim
            )
        except errors.NotFound:
            return False
        return claim.spec == _wanted(operation).spec

    def _check(self) -> None:
        if not self._holds():
            raise LeaseLost


def _wanted(operation: ClaimSlice) -> AllocationClaim:
    place = operation.placement
    return new_claim(
        name=operation.name,
        profile=place.profile,
        gpu_uuid=place.gpu,
        start=place.start,
        size=place.size,
        nodename=operation.node,
        pod=PodReference(namespace=operation.namespace, name=operation.pod, uid=operation.uid),
        containers=list(place.containers),
    )


async def _all(steps: Sequence[Awaitable[None]]) -> None:
    """All at once; every one is finished before the first error is raised."""
    results = await asyncio.gather(*steps, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
