"""What the demo observes: caches of pods, claims and events, a view, and waiting for a condition on them.

Everything is read through the Kubernetes API, as any user could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from apportion.apis import kinds
from apportion.apis.installation import Installation
from apportion.cluster.informer import Informer
from apportion.view.informers import Informers
from apportion.view.scene import Scene, scene
from apportion.view.view import View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from apportion.cluster.client import Client

Json = dict[str, Any]


class Observation:
    """Caches of the objects that the demo uses."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self._changed = asyncio.Event()
        self.pods = Informer(client, kinds.PODS, into=dict, namespace=namespace)
        self.claims = Informer(client, kinds.ALLOCATION_CLAIMS, into=dict, namespace=Installation.namespace)
        self.events = Informer(client, kinds.EVENTS, into=dict, namespace=namespace)
        self.planes = Informer(client, kinds.PODS, into=dict, namespace=Installation.namespace)
        self._view = View()
        self._informers = Informers(client, self._view, Installation())

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        informers: list[Informer[Any]] = [self.pods, self.claims, self.events, self.planes]
        for informer in informers:
            informer.on_change(lambda _old, _new: self._changed.set())
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        try:
            await asyncio.gather(*(informer.synced() for informer in informers))
            async with self._informers.following():
                await asyncio.gather(*(informer.synced() for informer in self._informers.all))
                yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, holds: Callable[[], bool], *, within: float) -> bool:
        """Wait until a condition on the caches holds; False after the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not holds():
            left = deadline - loop.time()
            if left <= 0:
                return False
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, 1.0)):
                    await self._changed.wait()
        return True

    def pods_of(self, app: str) -> list[Json]:
        return [pod for pod in self.pods.items() if pod["metadata"].get("labels", {}).get("app") == app]

    def running(self, app: str) -> list[Json]:
        return [pod for pod in self.pods_of(app) if is_running(pod)]

    def reason(self, pod: Json) -> str:
        found = [
            event
            for event in self.events.items()
            if event.get("involvedObject", {}).get("uid") == pod["metadata"]["uid"]
            and event.get("reason") == "FailedScheduling"
        ]
        newest = max(found, key=lambda event: int(event["metadata"]["resourceVersion"]), default=None)
        return str(newest["message"]) if newest else ""

    def claims_of(self, pods: Iterable[Json]) -> list[Json]:
        """Claims of these pods, in the order of their names (the order in which a container lists its slices)."""
        uids = {pod["metadata"]["uid"] for pod in pods}
        found = [claim for claim in self.claims.items() if claim["spec"]["podRef"]["uid"] in uids]
        return sorted(found, key=lambda claim: str(claim["metadata"]["name"]))

    def scene(self) -> Scene:
        """The GPUs and the pending pods, as `top` shows them."""
        return scene(self._view)


def is_running(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def mig_uuid(claim: Json) -> str:
    return str(claim.get("status", {}).get("migUUID", ""))
