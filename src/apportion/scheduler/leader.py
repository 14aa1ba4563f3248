"""What a leader is made of: the view of the cluster, and the components that act on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from apportion.apis.errors import InputError
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election
from apportion.core.operations import BindShare
from apportion.core.policies import Policy
from apportion.scheduler import waiting_metrics
from apportion.scheduler.advice import Advice
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.budget_check import BudgetCheck
from apportion.scheduler.claims.leftovers import Leftovers
from apportion.scheduler.claims.lost_claims import LostClaims
from apportion.scheduler.claims.marked_claims import MarkedClaims
from apportion.scheduler.commits import Committer
from apportion.scheduler.cycles import Cycles
from apportion.scheduler.events import Reporter
from apportion.scheduler.gpu_metrics import GpuMetrics
from apportion.scheduler.groups.config_events import ConfigEvents
from apportion.scheduler.groups.group_pods import GroupPods
from apportion.scheduler.groups.pod_groups import PodGroups
from apportion.scheduler.groups.stale_groups import StaleGroups
from apportion.scheduler.groups.status_content import StatusContent
from apportion.scheduler.groups.statuses import PodGroupStatuses
from apportion.scheduler.groups.wait_reasons import WaitReasons
from apportion.scheduler.intake import Intake
from apportion.scheduler.place_notes import PlaceNotes
from apportion.scheduler.pod_ends import PodEnds
from apportion.scheduler.queue_statuses import QueueStatuses
from apportion.scheduler.settings import Settings
from apportion.scheduler.sharing.failed_requests import FailedRequests
from apportion.scheduler.sharing.overdue_requests import OverdueRequests
from apportion.view.informers import Informers
from apportion.view.sharing.binder_state import BinderState
from apportion.view.view import View

UNCONFIRMED_SECONDS = 30.0
SWEEP_SECONDS = 5.0


class Leader:
    """Made anew for every leadership."""

    def __init__(self, client: Client, election: Election, settings: Settings, recorder: Recorder) -> None:
        now = clock.elapsed
        self.view = View(now=now, reservation_namespace=settings.installation.reservation_namespace)
        self.informers = informers = Informers(client, self.view, settings.installation)
        self.backlog = Backlog(now)
        changed = asyncio.Event()
        self.view.changes.on_change(changed.set)
        self._intake = Intake(self.view.waiting, self.backlog, on_offer=changed.set, on_problem=self._on_problem)
        self._reporter = Reporter(
            client,
            recorder,
            said=self.view.pods.condition_message,
            now=now,
            busy=lambda: self.backlog.busy,
        )
        informers.pods.on_change(self._forget_reports)
        self._leftovers = Leftovers(
            client, claims=informers.claims, pods=informers.pods, nodes=informers.nodes, holds=election.holds
        )
        self._marked_claims = MarkedClaims(
            client, claims=informers.claims, pods=informers.pods, recorder=recorder, holds=election.holds
        )
        group_pods = GroupPods(self.view, informers)
        self._pod_groups = PodGroups(
            client,
            self.view,
            informers.pod_groups,
            group_pods,
            holds=election.holds,
            busy=lambda: self.backlog.busy,
            now=now,
        )
        self._config_events = ConfigEvents(self.view.grouper_config, recorder)
        pod_ends = PodEnds(self.view)
        informers.pods.on_change(pod_ends.changed)
        places = PlaceNotes(client, settings.installation.namespace)
        self._committer = Committer(
            client,
            namespace=settings.installation.namespace,
            holds=election.holds,
            ready=self.view.ready,
            pod_ends=pod_ends,
            places=places,
            nominated=lambda uid: self.view.pods.nominated.get(uid, ""),
            check_budgets=BudgetCheck(client, self.view.budgets),
            group_name=self._pod_groups.name_of,
        )
        policy = Policy.named(settings.policy)
        self._lost_claims = LostClaims(
            client,
            self.view,
            informers,
            namespace=settings.installation.namespace,
            committer=self._committer,
            recorder=recorder,
            policy=policy,
            holds=election.holds,
        )
        self._failed_requests = FailedRequests(self.view, self.backlog, self._reporter, wake=changed.set)
        informers.bind_requests.on_change(self._failed_requests.changed)
        self._overdue_requests = OverdueRequests(
            self.view,
            self._reporter,
            BinderState(settings.installation.sharing_namespace),
            patience=settings.binder_patience,
            now=now,
        )
        informers.bind_requests.on_change(self._overdue_requests.request_changed)
        informers.pods.on_change(self._overdue_requests.pod_changed)
        self._advice = Advice(self.view, informers, recorder, holds=election.holds)
        self._cycles = Cycles(
            self.view,
            self.backlog,
            self._committer,
            self._reporter,
            policy,
            places,
            consolidation=settings.consolidation,
            changed=changed,
            now=now,
        )
        self._queue_statuses = QueueStatuses(client, self.view, self._cycles.entitlements, holds=election.holds)
        grace = settings.stale_group_seconds
        reasons = WaitReasons(self.view, self._cycles.entitlements)
        content = StatusContent(self.view, group_pods, reasons, grace=grace, today=time.time)
        self._group_statuses = PodGroupStatuses(
            client,
            self.view,
            informers.pod_groups,
            group_pods,
            self.backlog,
            content,
            recorder,
            holds=election.holds,
            now=now,
        )
        informers.pods.on_change(self._group_statuses.pod_changed)
        self._stale_groups = StaleGroups(
            self.view,
            group_pods,
            self._committer,
            self._reporter,
            recorder,
            grace=grace,
            holds=election.holds,
            now=now,
        )

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs once the informers have synced."""
        return [
            self._reporter.run(),
            self._leftovers.run(),
            self._marked_claims.run(),
            self._lost_claims.run(),
            self._overdue_requests.run(),
            self._advice.run(),
            self._cycles.run(),
            self._queue_statuses.run(),
            self._pod_groups.run(),
            self._group_statuses.run(),
            self._stale_groups.run(),
            waiting_metrics.run(self.view, self.backlog),
            GpuMetrics(self.view).run(),
            self._sweep(),
        ]

    def _on_problem(self, pod: Pod, error: InputError) -> None:
        self._reporter.problem(pod, error)

    def _forget_reports(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        if subject is not None and (new is None or new.spec.node_name):
            self._reporter.forget(PodUID(subject.metadata.uid))

    async def _sweep(self) -> None:
        """End assumptions that no informer confirmed, if the server says that they are wrong."""
        assumptions = self.view.assumptions
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            with suppress(errors.ClusterError):
                for statement, operation in assumptions.overdue(UNCONFIRMED_SECONDS):
                    if isinstance(operation, BindShare) and self.view.shares.request_of(operation.uid) is not None:
                        continue  # the binder has it
                    if not await self._committer.exists(operation):
                        assumptions.drop(operation)
                        if operation in statement.binds:
                            self.backlog.retry(statement.group.key)
