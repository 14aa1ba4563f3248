"""What the demo observes: caches of pods, claims, accelerators and events, and waiting for a condition on them.

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
from apportion.view.scene import ShownGpu, ShownSlice

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
        self.accelerators = Informer(client, kinds.NODE_ACCELERATORS, into=dict, namespace=Installation.namespace)
        self.events = Informer(client, kinds.EVENTS, into=dict, namespace=namespace)
        self.planes = Informer(client, kinds.PODS, into=dict, namespace=Installation.namespace)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        informers: list[Informer[Any]] = [self.pods, self.claims, self.accelerators, self.events, self.planes]
        for informer in informers:
            informer.on_change(lambda _old, _new: self._changed.set())
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        try:
            await asyncio.gather(*(informer.synced() for informer in informers))
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

    def waiting(self) -> list[tuple[str, str]]:
        """Pods without a node, each with the reason in its newest event."""
        return [
            (pod["metadata"]["name"], self.reason(pod))
            for pod in self.pods.items()
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]

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

    def gpus(self) -> dict[str, list[ShownGpu]]:
        """The grids, by node."""
        slices: dict[str, list[ShownSlice]] = {}
        for claim in self.claims.items():
            spec = claim["spec"]
            slices.setdefault(spec["gpuUUID"], []).append(
                ShownSlice(
                    profile=spec["profile"],
                    start=spec["migPlacement"]["start"],
                    size=spec["migPlacement"]["size"],
                    owner=spec["podRef"]["name"],
                    state=claim.get("status", {}).get("state", ""),
                )
            )
        return {
            accelerator["metadata"]["name"]: [
                ShownGpu(gpu["uuid"], gpu["model"], _units(gpu), tuple(slices.get(gpu["uuid"], ())))
                for gpu in accelerator.get("status", {}).get("gpus", [])
            ]
            for accelerator in sorted(self.accelerators.items(), key=lambda item: str(item["metadata"]["name"]))
        }


def is_running(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def mig_uuid(claim: Json) -> str:
    return str(claim.get("status", {}).get("migUUID", ""))


def _units(gpu: Json) -> int:
    ends = [
        start + profile["size"]
        for profile in gpu.get("profiles", [])
        for profile_starts in [profile["starts"]]
        for start in profile_starts
    ]
    return max(ends, default=0)
