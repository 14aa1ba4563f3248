"""What the scheduler tells people about a pod: an event, and the condition PodScheduled.

A pod that waits is told why at once; when only the numbers in the sentence change, at most every few
seconds, so that a full cluster with thousands of waiting pods is not kept busy by our own reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from apportion.apis.errors import InputError
from apportion.apis.kinds import PODS
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.cluster import clock, errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.workqueue import WorkQueue
from apportion.core.plans import Plan

BETWEEN_REPORTS_SECONDS = 10.0
WORKERS = 8
SCHEDULED, FAILED = "Scheduled", "FailedScheduling"


@dataclass
class _Report:
    request: Request
    text: str
    said: str
    at: float = float("-inf")


class Reporter:
    """Says the latest about each pod, in the background. `said(uid)` is what a pod's condition says now."""

    def __init__(
        self, client: Client, recorder: Recorder, *, said: Callable[[str], str], now: Callable[[], float]
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._said = said
        self._now = now
        self._reports: dict[str, _Report] = {}
        self._queue: WorkQueue[str] = WorkQueue("reports")

    def waits(self, request: Request, text: str) -> None:
        """The pod cannot be placed, and why."""
        report = self._reports.get(request.uid)
        if report is None:
            report = self._reports[request.uid] = _Report(request, text, self._said(request.uid))
        report.text = text
        if report.text != report.said:
            self._queue.add_after(request.uid, report.at + BETWEEN_REPORTS_SECONDS - self._now())

    def problem(self, pod: Pod, error: InputError) -> None:
        """The pod asks for something that can never be right."""
        meta = pod.metadata
        self.waits(Request(uid=meta.uid, namespace=meta.namespace, name=meta.name), f"Cannot be scheduled: {error}")

    def placed(self, request: Request, plan: Plan) -> None:
        self.forget(request.uid)
        (bind,) = plan.binds
        text = f"Successfully assigned {request.key} to {bind.node}"
        slices = [f"{c.placement.profile} at {c.placement.start} on {c.placement.gpu}" for c in plan.claims]
        if slices:
            text += f": {', '.join(slices)}"
        self._recorder.record(_regarding(request), SCHEDULED, text)

    def forget(self, uid: str) -> None:
        """The pod waits no longer."""
        self._reports.pop(uid, None)

    async def run(self) -> None:
        await self._queue.run(self._report, WORKERS)

    async def _report(self, uid: str) -> None:
        report = self._reports.get(uid)
        if report is None or report.text == report.said:
            return
        text, report.at = report.text, self._now()
        request = report.request
        self._recorder.warn(_regarding(request), FAILED, text)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": clock.timestamp(),
        }
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS, request.name, patch, namespace=request.namespace, how=PatchType.strategic, subresource="status"
            )
        except (errors.NotFound, errors.Conflict, errors.Invalid):  # gone, or another pod of that name
            self._reports.pop(uid, None)
            return
        report.said = text


def _regarding(request: Request) -> Regarding:
    return Regarding.pod(request.namespace, request.name, request.uid)
