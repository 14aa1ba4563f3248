"""The log of a standby: the decisions of the leader, as they become events.

Whoever looks at the log of either Deployment of the scheduler sees what was decided. A standby only reads: it follows
the events of scheduler and binder from the moment on at which it stands by, keeps nothing, and stops when it leads. If
events cannot be read, it says so once and goes on trying, and the election does not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec

from apportion.apis import names
from apportion.apis.kinds import EVENTS
from apportion.apis.meta import ObjectMeta, Wire
from apportion.cluster import errors, watching
from apportion.cluster.client import Client

log = logging.getLogger(__name__)

COMPONENTS = (names.DAS_SCHEDULER, names.BINDER_APP)  # whose events are decisions
SETTLE_SECONDS = 1.0  # a process that leads at once reads nothing
PAUSE_SECONDS = 5.0  # after an answer that was an error


class InvolvedObject(Wire):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class Event(Wire):
    """As much of an event as a line of the log has."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    involved_object: InvolvedObject = msgspec.field(default_factory=InvolvedObject)
    message: str | None = None

    @property
    def line(self) -> str:
        about = self.involved_object
        key = f"{about.namespace}/{about.name}" if about.namespace else about.name
        return f"{about.kind.lower()} {key}: {self.message or ''}"


class DecisionLog:
    """Follows events while this process does not lead. `namespace` is one in which events may be listed."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._leading = asyncio.Event()
        self._standing_by = asyncio.Event()
        self._standing_by.set()

    async def quiet_during(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Lead without following."""
        self._standing_by.clear()
        self._leading.set()
        try:
            await lead()
        finally:
            self._leading.clear()
            self._standing_by.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._standing_by.wait()
            following = [asyncio.create_task(self._follow(component)) for component in COMPONENTS]
            try:
                await self._leading.wait()
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)

    async def _follow(self, component: str) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        log.info("standing by: the GPU decisions of the leading %s follow", component)
        level = logging.WARNING
        while True:
            try:
                await self._watch(component)
                level = logging.WARNING
            except errors.Gone:
                log.debug(
                    "events of %s: the resourceVersion has expired, so some decisions are missing here", component
                )
            except errors.ClusterError as error:
                log.log(level, "events of %s cannot be followed: %s", component, error)
                level = logging.DEBUG
            await asyncio.sleep(PAUSE_SECONDS)

    async def _watch(self, component: str) -> None:
        """From now on until the server ends it. The list is of one namespace, because only its version is of use."""
        fields = f"source={component}"
        listed = await self._client.list(EVENTS, namespace=self._namespace, fields=fields, into=Event)
        version = listed.resource_version
        while True:
            stream = self._client.watch(EVENTS, resource_version=version, fields=fields, into=Event)
            async with aclosing(stream) as events:
                async for event in events:
                    version = event.resource_version or version
                    if event.object is not None and event.type != watching.DELETED:
                        log.info("%s", event.object.line)
            await asyncio.sleep(SETTLE_SECONDS)  # no busy loop if the server ends each watch at once
