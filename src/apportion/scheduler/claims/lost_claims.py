"""Bound pods that lost a claim: they get it again for a slice that exists, a new one on their node, or are evicted.

The API server cannot write a claim and a binding at once. If two processes lead for a moment, one can remove the
claims of a pod that still waits in its eyes while the other binds that pod; a user can remove claims too. Such a pod
would wait for its slices forever. Pods that were created with a node were never ours to place and are left alone.

A pod that runs keeps its slices whatever happens to their claims: its agent reports them in its NodeAccelerator, and
their claims are created again as they were. The claim of a pod has one name, so there are never two of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from apportion.apis import names
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.claims import AllocationClaim, claim_name
from apportion.apis.identities import PodUID
from apportion.apis.kinds import ALLOCATION_CLAIMS
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.apis.request import SliceRequest
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.workqueue import WorkQueue
from apportion.core import lost_slices
from apportion.core.operations import ClaimSlice, Evict
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from apportion.scheduler.commits import Committer, carried_out
from apportion.view.informers import Informers
from apportion.view.view import View

log = logging.getLogger(__name__)

GRACE_SECONDS = 5.0  # pods and claims come in two streams, and a claim may be on its way
RETRY_SECONDS = 5.0


class LostClaims:
    """Watches bound pods, and agents' reports of slices without a claim."""

    def __init__(
        self,
        client: Client,
        view: View,
        informers: Informers,
        *,
        namespace: str,
        committer: Committer,
        recorder: Recorder,
        policy: Policy,
        holds: Callable[[], bool],
    ) -> None:
        self._client, self._namespace = client, namespace
        self._view = view
        self._committer = committer
        self._recorder = recorder
        self._policy = policy
        self._holds = holds
        self._queue: WorkQueue[PodUID] = WorkQueue("lost claims")
        informers.pods.on_change(self._pod_changed)
        informers.claims.on_change(self._claim_changed)
        informers.accelerators.on_change(self._report_changed)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        await self._queue.run(self._reconcile)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and new.spec.node_name and not old.spec.node_name:
            self._check_later(new)

    def _claim_changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if old is not None and new is None:
            pod = self._view.pods.get(PodUID(old.spec.pod_ref.uid))
            if pod is not None:
                self._check_later(pod)

    def _report_changed(self, _: NodeAccelerator | None, new: NodeAccelerator | None) -> None:
        for entry in new.status.unclaimed if new is not None else ():
            self._queue.add_after(entry.pod_uid, GRACE_SECONDS)

    def _check_later(self, pod: Pod) -> None:
        if _waits_for_slices(pod):
            self._queue.add_after(PodUID(pod.metadata.uid), GRACE_SECONDS)

    async def _reconcile(self, uid: PodUID) -> float | None:
        pod = self._view.pods.get(uid)
        wants = lost_slices.missing(self._view.fleet, uid)
        if pod is None or not wants or not _is_ours(pod):
            return None
        existing = self._view.accelerators.unclaimed(pod.spec.node_name, uid)
        if not existing and not _waits_for_slices(pod):
            return None
        if not self._holds() or await self._exist(uid, wants):
            return RETRY_SECONDS
        fleet = self._view.fleet
        statement = (
            lost_slices.restore(fleet, uid, existing) if existing else lost_slices.replace(fleet, uid, self._policy)
        )
        if statement is not None:
            await self._carry_out(pod, statement)
        return RETRY_SECONDS

    async def _carry_out(self, pod: Pod, statement: Statement) -> None:
        result = await carried_out(self._committer, self._view.assumptions, statement)
        if result is not None and result.complete:
            self._report(pod, statement)

    async def _exist(self, uid: PodUID, wants: list[SliceRequest]) -> bool:
        """The server has some of the claims: our view of them is behind."""
        for want in wants:
            name = claim_name(uid, want.container, want.index)
            with suppress(errors.NotFound):
                await self._client.get(ALLOCATION_CLAIMS, name, namespace=self._namespace, into=Bare)
                return True
        return False

    def _report(self, pod: Pod, statement: Statement) -> None:
        regarding = Regarding.pod(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        for operation in statement.operations:
            if isinstance(operation, Evict):
                text = f"{operation.reason}: the pod is evicted"
                self._recorder.warn(regarding, "SliceLost", text)
            elif isinstance(operation, ClaimSlice):
                text = f"claim {operation.name} was removed, and was created again"
                self._recorder.record(regarding, "SliceClaimedAgain", text)
            else:
                continue
            log.warning("pod %s: %s", statement.group.name, text)


def _is_ours(pod: Pod) -> bool:
    return (
        pod.spec.scheduler_name in names.OUR_SCHEDULERS
        and bool(pod.spec.node_name)
        and not pod.metadata.deleting
        and not pod.terminal
    )


def _waits_for_slices(pod: Pod) -> bool:
    return _is_ours(pod) and pod.status.phase in {"", "Pending"}
