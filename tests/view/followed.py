"""A view that follows the embedded API, and what tests ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from apportion.apis import kinds
from apportion.apis.identities import PodUID
from apportion.apis.installation import Installation
from apportion.apis.kinds import Kind
from apportion.apis.request import Request
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.view.informers import Informers
from apportion.view.view import View
from apportion.view.waiting import WaitingPod
from tests.builders import groups, pods
from tests.scheduler.cluster import ApiCluster, Fault, until, until_served

Json = dict[str, Any]


class Followed:
    """A view in step with a cluster."""

    def __init__(self, cluster: ApiCluster, view: View) -> None:
        self.client = cluster.client
        self.view = view
        self._uids: dict[str, PodUID] = {}
        self._made: list[tuple[Kind, Json]] = []

    async def create(self, kind: Kind, body: Json) -> Json:
        """The object as the server has it, with its kind, so that it can own others; removed after the test."""
        made = await self.client.create(kind, body)
        self._made.append((kind, made))
        return {"apiVersion": kind.api_version, "kind": kind.kind, **made}

    async def install(self, kind: Kind) -> None:
        """Define a kind whose objects can have any fields."""
        await self.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, groups.definition(kind.group, kind.kind, kind.version))
        await until_served(self.client, kind)

    async def clear(self) -> None:
        for kind, made in reversed(self._made):
            meta = made["metadata"]
            with suppress(errors.NotFound):
                await self.client.delete(kind, meta["name"], namespace=meta.get("namespace"), propagation="Background")

    async def pod(self, name: str, *, owner: Json | None = None, **options: Any) -> PodUID:
        body = pods.our_pod(name, **options)
        if owner is not None:
            body = groups.owned(body, owner)
        made = await self.client.create(kinds.PODS, body)
        self._uids[name] = PodUID(made["metadata"]["uid"])
        return self._uids[name]

    def waiting(self, name: str) -> WaitingPod | None:
        return self.view.waiting.get(self._uids[name])

    async def until(self, holds: Callable[[], Any], within: float = 15) -> Any:
        async def probe() -> Any:
            return holds()

        return await until(probe, within=within)

    async def read(self, name: str, **fields: Any) -> Request:
        """Wait until the pod can be decided about, and its request has these fields."""

        def request() -> Request | None:
            waiting = self.waiting(name)
            if waiting is None or waiting.held or waiting.reading.problem is not None:
                return None
            found = waiting.reading.request
            same = found is not None and all(getattr(found, field) == value for field, value in fields.items())
            return found if same else None

        found = await self.until(request)
        assert isinstance(found, Request)
        return found

    async def problem(self, name: str) -> str:
        """Wait until something is wrong with the pod, and say what."""

        def text() -> str:
            waiting = self.waiting(name)
            return str(waiting.reading.problem) if waiting is not None and waiting.reading.problem is not None else ""

        return str(await self.until(text))


@asynccontextmanager
async def followed(cluster: ApiCluster, fault: Fault | None = None) -> AsyncIterator[Followed]:
    view = View()
    async with Client(cluster.wire(fault)) as client:
        informers = Informers(client, view, Installation())
        async with informers.following():
            await asyncio.gather(*(informer.synced() for informer in informers.all))
            made = Followed(cluster, view)
            try:
                yield made
            finally:
                await made.clear()


async def read_afresh(cluster: ApiCluster) -> View:
    view = View()
    await Informers(cluster.client, view, Installation()).load()
    return view
