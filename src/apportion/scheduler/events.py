"""Reports about pods: an event, and the condition PodScheduled.

A pod that waits is told why at once; later changes of the sentence (mostly of its numbers) at most every few seconds,
and of all pods together at a limited rate, so that a full cluster with thousands of waiting pods is not kept busy by
our own reports. Events about bound pods are delayed while bindings are being written, for a limited time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from apportion.apis.errors import InputError
from apportion.apis.identities import PodUID
from apportion.apis.kinds import PODS
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.cluster import clock, errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.workqueue import WorkQueue
from apportion.core import refusals
from apportion.core.explanations import messages
from apportion.core.operations import BindShare, Evict
from apportion.core.reasons import Code
from apportion.core.statement import Statement

log = logging.getLogger(__name__)

BETWEEN_REPORTS_SECONDS = 10.0  # about one pod
BETWEEN_REPEATED_SECONDS = 0.05  # about any pods that were told before
SOON_OVER_SECONDS = 2.0  # pods of a group that is being created, or pods that are being evicted
STAND_BACK_SECONDS = 20.0  # the longest that an event about a bound pod waits for others to be bound
LOOK_SECONDS = 0.2
WORKERS = 8
BATCH = 100
SCHEDULED, FAILED, EVICTED = "Scheduled", "FailedScheduling", "Evicted"


@dataclass
class _Report:
    request: Request
    text: str
    said: str  # by the pod's condition
    version: str = ""  # of the pod, if the sentence holds for no other
    told: str = ""  # by an event of ours: whoever led before may have died between condition and event
    at: float = float("-inf")
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)  # a later sentence must not be overtaken

    @property
    def open(self) -> bool:
        return not self.text == self.told == self.said


class _News(NamedTuple):
    """What happened to a pod: its event is written at the latest at `due`."""

    due: float
    regarding: Regarding
    reason: str
    text: str


class Reporter:
    """Says the latest about each pod, in the background. `said(uid)` is what a pod's condition says now.

    `busy()` is true while bindings are being written.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        *,
        said: Callable[[PodUID], str],
        now: Callable[[], float],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._said = said
        self._now = now
        self._busy = busy
        self._news: deque[_News] = deque()
        self._has_news = asyncio.Event()
        self._ended = False
        self._reports: dict[PodUID, _Report] = {}
        self._first: WorkQueue[PodUID] = WorkQueue("reports")
        self._repeated: WorkQueue[PodUID] = WorkQueue("repeated reports")

    def waits(self, request: Request, text: str, *, soon_over: bool = False, version: str = "") -> None:
        """The pod cannot be placed, and why. If that is `soon_over`, it is told only after a while. With a `version` of
        the pod its condition is written on no later one: somebody else may bind it at any time."""
        report = self._reports.get(request.uid)
        if report is None:
            report = self._reports[request.uid] = _Report(request, text, self._said(request.uid))
        report.text, report.version = text, version
        if not report.open:
            return
        if report.told:
            self._repeated.add_after(request.uid, report.at + BETWEEN_REPORTS_SECONDS - self._now())
        else:
            self._first.add_after(request.uid, SOON_OVER_SECONDS if soon_over else 0.0)

    def problem(self, pod: Pod, error: InputError) -> None:
        """The request of the pod is invalid."""
        meta = pod.metadata
        request = Request(uid=PodUID(meta.uid), namespace=meta.namespace, name=meta.name)
        self.waits(request, messages.of(refusals.of_pod(request, Code.INVALID, str(error))))

    def placed(self, statement: Statement, uids: Collection[PodUID]) -> None:
        """These of its pods are bound, or will be by the binder, which tells that itself."""
        for bind in statement.binds:
            request = bind.request
            if request.uid not in uids:
                continue
            self.forget(request.uid)
            if isinstance(bind, BindShare):
                continue
            text = f"Successfully assigned {request.key} to {bind.node}"
            devices = statement.devices_of(bind)
            if request.slices and devices:
                text += ": " + ", ".join(devices)
            self._news.append(_News(self._now() + STAND_BACK_SECONDS, _regarding(request), SCHEDULED, text))
        self._tell_later()

    def evicted(self, operations: Sequence[Evict]) -> None:
        """These pods were evicted. Their events are not held back."""
        now = self._now()
        news = [_News(now, _regarding(each.request), EVICTED, each.reason) for each in operations]
        self._news.extendleft(reversed(news))
        self._tell_later()

    def forget(self, uid: PodUID) -> None:
        """The pod waits no longer."""
        self._reports.pop(uid, None)

    async def run(self) -> None:
        """Work until cancelled; what is still to be told then, and from then on, goes to the recorder at once."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._first.run(self._report, WORKERS))
                group.create_task(self._repeated.run(self._repeat))
                group.create_task(self._tell_news())
        finally:
            self._ended = True
            self._tell(len(self._news))

    async def _tell_news(self) -> None:
        while True:
            await self._has_news.wait()
            while self._busy() and self._news[0].due > self._now():  # noqa: ASYNC110  nobody tells when it is over
                await asyncio.sleep(LOOK_SECONDS)
            self._tell(BATCH)
            await self._recorder.flush()  # its queue is short, and what does not fit is lost

    def _tell_later(self) -> None:
        if self._ended:
            self._tell(len(self._news))
        elif self._news:
            self._has_news.set()

    def _tell(self, most: int) -> None:
        for _ in range(min(most, len(self._news))):
            news = self._news.popleft()
            record = self._recorder.warn if news.reason == EVICTED else self._recorder.record
            record(news.regarding, news.reason, news.text)
        if not self._news:
            self._has_news.clear()

    async def _repeat(self, uid: PodUID) -> None:
        report = self._reports.get(uid)
        if report is not None and report.open:
            await asyncio.sleep(BETWEEN_REPEATED_SECONDS)
            await self._report(uid)

    async def _report(self, uid: PodUID) -> None:
        report = self._reports.get(uid)
        if report is not None:
            async with report.writing:
                await self._write(uid, report)

    async def _write(self, uid: PodUID, report: _Report) -> None:
        if not report.open or self._reports.get(uid) is not report:
            return
        text, report.at = report.text, self._now()
        request = report.request
        if text != report.told:
            log.info("pod %s is pending: %r", request.key, text)
            self._recorder.warn(_regarding(request), FAILED, text)
            report.told = text
        if text == report.said:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": clock.timestamp(),
        }
        version = {"resourceVersion": report.version} if report.version else {}
        patch = {"metadata": {"uid": uid, **version}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS, request.name, patch, namespace=request.namespace, how=PatchType.strategic, subresource="status"
            )
        except (errors.NotFound, errors.Conflict, errors.Invalid):  # gone, another pod of that name, or changed
            self._reports.pop(uid, None)
            return
        report.said = text


def _regarding(request: Request) -> Regarding:
    return Regarding.pod(request.namespace, request.name, request.uid)
