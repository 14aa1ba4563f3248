"""An observer of pods through the API: at every change, what bound pods have of each GPU must be there.

It shares no arithmetic with the code that decides: it adds up what is written on pods. A violation is noted when it is
seen and raised in the end.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.client import Client

JSON = dict[str, Any]
SHARED_GPUS = "apportion.io/shared-gpus"


class ShareObserver:
    """`memory` is the MiB of each GPU by its UUID, as the hardware has it."""

    def __init__(self, client: Client, memory: Mapping[str, int]) -> None:
        self._client = client
        self._memory = memory
        self._has: dict[str, list[JSON]] = {}  # uid of a bound pod -> what it has
        self.violations: list[str] = []
        self.bound = 0
        self.fullest = 0  # MiB of one GPU that were in use at once

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[ShareObserver]:
        task = asyncio.create_task(self._watch())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert not self.violations, "; ".join(self.violations[:5])

    async def _watch(self) -> None:
        while True:
            try:
                listing = await self._client.list(kinds.PODS)
                self._has.clear()
                for item in listing.items:
                    self._changed("ADDED", item)
                watch = self._client.watch(kinds.PODS, resource_version=listing.resource_version)
                async with aclosing(watch) as events:
                    async for event in events:
                        if event.object is not None:
                            self._changed(event.type, event.object)
            except errors.ClusterError:
                continue

    def _changed(self, event: str, pod: JSON) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if event == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._has.pop(uid, None)
            return
        gpus: list[JSON] = json.loads(pod["metadata"].get("annotations", {}).get(SHARED_GPUS, "[]"))
        if not pod["spec"].get("nodeName"):
            if gpus:
                self.violations.append(f"pod {name} has {gpus} and no node")
            return
        if self._has.get(uid, gpus) != gpus:
            self.violations.append(f"bound pod {name} had {self._has[uid]}, and now {gpus}")
        self.bound += bool(gpus) and uid not in self._has
        self._has[uid] = gpus
        self._add_up(name)

    def _add_up(self, name: str) -> None:
        used: Counter[str] = Counter()
        for gpus in self._has.values():
            for gpu in gpus:
                used[gpu.get("uuid") or gpu["device"]] += gpu["mib"]
        for gpu, mib in used.items():
            if mib > self._memory[gpu]:
                self.violations.append(f"{mib} of {self._memory[gpu]} MiB of {gpu} are sold since {name} is bound")
            self.fullest = max(self.fullest, mib)
