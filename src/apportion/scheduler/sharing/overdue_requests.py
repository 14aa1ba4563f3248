"""BindRequests that are not carried out: the pod is told what it waits for.

Nothing is asked of the API server for it. A request is overdue if nothing has happened to it for a while: to the
reservation pods of its groups, or to any other request, since a binder with many pods to bind is not to be blamed. The
last holds only for a limited time, and not if a reservation pod does not start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.core.explanations import messages
from apportion.scheduler.events import Reporter
from apportion.view.sharing import handed_over
from apportion.view.sharing.binder_state import BinderState
from apportion.view.view import View

_TOGETHER = 1 / 15  # of the patience: requests that are due that soon after each other are looked at together


class OverdueRequests:
    """Follows BindRequests and pods, after the view."""

    def __init__(
        self,
        view: View,
        reporter: Reporter,
        binder: BinderState,
        *,
        patience: float,
        now: Callable[[], float],
    ) -> None:
        self._view, self._reporter, self._binder = view, reporter, binder
        self._patience, self._now = patience, now
        self._open: dict[PodUID, tuple[BindRequest, float]] = {}  # with the time at which it was first observed
        self._groups: dict[str, float] = {}  # when something happened to the reservation pod of a group
        self._worked = float("-inf")  # when the binder did something
        self._first = asyncio.Event()

    def request_changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        subject = new or old
        assert subject is not None
        uid = PodUID(subject.spec.pod_uid)
        if new is None or new.failed:
            if self._open.pop(uid, None) is not None and new is not None:
                self._worked = self._now()
        elif old is None or old.metadata.uid != new.metadata.uid:
            self._open[uid] = new, self._now()
            self._first.set()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        if not self._open or subject is None:
            return
        if subject.metadata.namespace == self._view.fleet.reservation_namespace:
            self._reservation_changed(old, new)
        elif new is None:
            self._open.pop(subject.uid, None)
        elif new.spec.node_name and self._open.pop(new.uid, None) is not None:
            self._worked = self._now()

    def _reservation_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and _state(old) == _state(new):
            return
        subject = new or old
        assert subject is not None
        now = self._now()
        self._groups.update(dict.fromkeys(shared_gpus.groups_of(subject.metadata), now))
        if old is None or new is None or _sharers(old) != _sharers(new):
            self._worked = now

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        while True:
            due = self.look()
            self._first.clear()
            if due is None:
                await self._first.wait()
            else:
                await asyncio.sleep(max(due - self._now(), self._patience * _TOGETHER))

    def look(self) -> float | None:
        """Tell the pods whose requests are overdue; when to look again, None if there is no request."""
        due = [self._look(uid, *known) for uid, known in list(self._open.items())]
        if not self._open:
            self._groups.clear()
        return min((moment for moment in due if moment is not None), default=None)

    def _look(self, uid: PodUID, request: BindRequest, since: float) -> float | None:
        asked = self._view.shares.request_of(uid)
        if asked is None or asked.metadata.uid != request.metadata.uid:
            if since + self._patience > self._now():  # the pod may not have been observed yet
                return since + self._patience
            del self._open[uid]
            return None
        due = self._due(asked, since)
        if due > self._now():
            return due
        self._tell(uid, asked)
        return self._now() + self._patience

    def _due(self, request: BindRequest, since: float) -> float:
        own = max([since, *(self._groups.get(group, since) for group in request.spec.selected_gpu_groups)])
        if handed_over.waits_for(self._view, request) is not None:
            return own + self._patience
        return min(max(own, self._worked) + self._patience, own + handed_over.LONGEST_SECONDS)

    def _tell(self, uid: PodUID, request: BindRequest) -> None:
        waiting, pod = self._view.waiting.get(uid), self._view.pods.get(uid)
        asked = waiting.reading.request if waiting is not None else None
        if asked is None or pod is None:
            return
        refusal = handed_over.overdue(asked, request, self._view, self._binder, int(self._patience))
        self._reporter.waits(asked, messages.of(refusal), version=pod.metadata.resource_version)


def _sharers(reservation: Pod) -> str | None:
    return reservation.metadata.annotations.get(names.SHARERS)


def _state(reservation: Pod) -> tuple[object, ...]:
    """Containers that are tried again and again are no progress."""
    meta = reservation.metadata
    return meta.annotations, meta.deleting, reservation.status.phase
