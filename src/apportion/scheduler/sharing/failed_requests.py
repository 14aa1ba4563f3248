"""BindRequests that failed: the reason is reported, and the pod is decided about again."""

from __future__ import annotations

from collections.abc import Callable

from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import PodUID
from apportion.core import refusals
from apportion.core.explanations import messages
from apportion.core.reasons import Code
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.events import Reporter
from apportion.view.view import View


class FailedRequests:
    """Follows BindRequests."""

    def __init__(self, view: View, backlog: Backlog, reporter: Reporter, *, wake: Callable[[], None]) -> None:
        self._view, self._backlog, self._reporter, self._wake = view, backlog, reporter, wake

    def changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        """To be called after the view has taken the pod off its node."""
        if new is None or not new.failed or (old is not None and old.failed and old.metadata.uid == new.metadata.uid):
            return
        waiting = self._view.waiting.get(PodUID(new.spec.pod_uid))
        request = waiting.reading.request if waiting is not None else None
        if request is None:
            return
        refusal = refusals.of_pod(request, Code.BINDING_FAILED, new.status.reason)
        self._reporter.waits(request, messages.of(refusal))
        self._backlog.retry(request.group_key)
        self._wake()
