"""Events on objects, as `kubectl describe` shows them: repeated ones are counted, bursts are limited.

`Recorder.record` never waits and never fails; `run()` writes in the background, and tries again for a while
if the server does not answer. The same event again raises the count of the first. An object may have a burst
of 25 events and then one every five minutes, so that a pod that fails in a loop cannot fill the API server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from apportion.apis.kinds import EVENTS
from apportion.cluster import clock, errors
from apportion.cluster.client import Client

log = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"
BURST = 25
REFILL_SECONDS = 300.0
REMEMBERED = 4096
QUEUED = 1000
LONGEST_MESSAGE = 1024
LAST_SECONDS = 1.0  # for what is not written yet when the recorder is stopped
PAUSES_SECONDS = (0.2, 1.0, 5.0)  # before a write is tried again that the server did not answer


@dataclass(frozen=True)
class Regarding:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> Regarding:
        return cls("v1", "Pod", name, namespace, uid)

    @classmethod
    def node(cls, name: str, uid: str = "") -> Regarding:
        return cls("v1", "Node", name, "", uid or name)

    def reference(self) -> dict[str, str]:
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "fieldPath": self.field_path,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class _Note:
    regarding: Regarding
    type: str
    reason: str
    message: str
    at: str
    moment: str = ""  # part of the name of an event whose order within a second matters

    @property
    def key(self) -> str:
        """The same event has the same key, also after a restart of ours."""
        about = f"{self.regarding.uid}\0{self.regarding.kind}\0{self.regarding.field_path}"
        text = f"{about}\0{self.type}\0{self.reason}\0{self.message}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.regarding.name}.{self.moment or self.key}"


@dataclass
class _Bucket:
    """A token bucket: how many events an object may still have."""

    at: float
    tokens: float = BURST

    def take(self, now: float) -> bool:
        self.tokens = min(float(BURST), self.tokens + (now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Recorder:
    """Writes events of one component."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        host: str = "",
        now: clock.Clock = clock.elapsed,
        ordered: bool = False,
    ) -> None:
        """`ordered`: names that sort by time, as a kubelet's; kubectl shows events of one second in that order.

        Such a recorder counts repetitions only until it is restarted.
        """
        self._ordered = ordered
        self._moments: OrderedDict[str, str] = OrderedDict()  # key of an event -> the moment in its name
        self._client = client
        self._component = component
        self._host = host
        self._now = now
        self._queue: asyncio.Queue[_Note] = asyncio.Queue(QUEUED)
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self.dropped = 0

    def record(self, regarding: Regarding, reason: str, message: str, *, type: str = NORMAL) -> None:  # noqa: A002
        """Note an event; dropped (and counted) if the object or the recorder has too many."""
        note = self._dated(_Note(regarding, type, reason, _cut(message), clock.timestamp()))
        if not self._bucket(f"{regarding.kind}/{regarding.uid or regarding.name}").take(self._now()):
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(note)
        except asyncio.QueueFull:
            self.dropped += 1

    def warn(self, regarding: Regarding, reason: str, message: str) -> None:
        self.record(regarding, reason, message, type=WARNING)

    async def run(self) -> None:
        """Write until cancelled; what is under way or queued then is written if it goes quickly."""
        work = asyncio.create_task(self._write_all())
        try:
            await asyncio.wait({work})
            work.result()
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(LAST_SECONDS):
                    await self._queue.join()
            except TimeoutError:
                log.debug("%d events could not be written", self._queue.qsize())
            raise
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def flush(self) -> None:
        """Wait until everything recorded so far is written (`run` must be running)."""
        await self._queue.join()

    async def _write_all(self) -> None:
        while True:
            note = await self._queue.get()
            try:
                await self._try(note)
            except errors.ClusterError as error:
                self.dropped += 1
                log.debug("cannot write event %s for %s: %s", note.reason, note.regarding.name, error)
            finally:
                self._queue.task_done()
            await asyncio.sleep(0)  # a server in this process answers without ever waiting

    async def _try(self, note: _Note) -> None:
        """The server may have acted although its answer did not come."""
        for attempt, pause in enumerate(PAUSES_SECONDS):
            try:
                await self._write(note, again=attempt > 0)
            except (errors.Unreachable, errors.ServerError, errors.TooManyRequests):
                await asyncio.sleep(pause)
            else:
                return
        await self._write(note, again=True)

    async def _write(self, note: _Note, *, again: bool) -> None:
        namespace = note.regarding.namespace or "default"
        count = self._counts.get(note.name, 0) + 1
        if count > 1 and await self._raise(note, namespace, count):
            return
        try:
            await self._client.create(EVENTS, self._body(note, namespace), namespace=namespace)
            self._remember(note.name, 1)
        except errors.AlreadyExists:  # written before a restart of ours, or by the attempt before
            known = await self._client.get(EVENTS, note.name, namespace=namespace)
            count = int(known.get("count") or 1)
            if again and known.get("lastTimestamp") == note.at:
                self._remember(note.name, count)
            else:
                await self._raise(note, namespace, count + 1)

    async def _raise(self, note: _Note, namespace: str, count: int) -> bool:
        patch = {"count": count, "lastTimestamp": note.at}
        try:
            await self._client.patch(EVENTS, note.name, patch, namespace=namespace)
        except errors.NotFound:  # events expire
            return False
        self._remember(note.name, count)
        return True

    def _dated(self, note: _Note) -> _Note:
        if not self._ordered:
            return note
        moment = self._moments.setdefault(note.key, f"{time.time_ns():016x}")
        self._moments.move_to_end(note.key)
        if len(self._moments) > REMEMBERED:
            self._moments.popitem(last=False)
        return replace(note, moment=moment)

    def _bucket(self, key: str) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._now())
        self._buckets.move_to_end(key)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    def _body(self, note: _Note, namespace: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": note.name, "namespace": namespace},
            "involvedObject": note.regarding.reference(),
            "type": note.type,
            "reason": note.reason,
            "message": note.message,
            "source": {"component": self._component, **({"host": self._host} if self._host else {})},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": note.at,
            "lastTimestamp": note.at,
            "count": 1,
        }


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - 1] + "…"
