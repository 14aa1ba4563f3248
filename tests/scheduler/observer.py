"""An observer of claims and pods through the API, and what must be true at every moment.

It shares no arithmetic with the code that decides. A violation is noted when it is seen and raised in the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from apportion.apis import kinds
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client

JSON = dict[str, Any]
IN_USE = ("processing", "inUse")
COUNTED = ("nvidia.com/gpu", "mig.das.com/", "gpu.das.com/")


class Observer:
    """`strictly`: no two claims overlap at all, and no node is oversold. Otherwise only claims in use may not."""

    def __init__(self, client: Client, *, strictly: bool = True) -> None:
        self._client = client
        self._strictly = strictly
        self._claims: dict[str, JSON] = {}
        self._pods: dict[str, JSON] = {}
        self._nodes: dict[str, JSON] = {}
        self.violations: list[str] = []
        self.seen: Counter[str] = Counter()
        self.contested: set[frozenset[str]] = set()  # pairs of claims that lay on one place

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Observer]:
        for node in (await self._client.list(kinds.NODES)).items:
            self._nodes[node["metadata"]["name"]] = node
        watches = ((kinds.ALLOCATION_CLAIMS, self._claim), (kinds.PODS, self._pod))
        tasks = [asyncio.create_task(self._watch(kind, told)) for kind, told in watches]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert not self.violations, "; ".join(self.violations[:5])

    async def _watch(self, kind: Kind, told: Any) -> None:
        while True:
            listing = await self._client.list(kind)
            known = self._claims if kind is kinds.ALLOCATION_CLAIMS else self._pods
            known.clear()
            for item in listing.items:
                told("ADDED", item)
            try:
                async with aclosing(self._client.watch(kind, resource_version=listing.resource_version)) as events:
                    async for event in events:
                        if event.object is not None:
                            told(event.type, event.object)
            except errors.ClusterError:
                continue

    def _claim(self, event: str, claim: JSON) -> None:
        self.seen["claims"] += 1
        name = claim["metadata"]["name"]
        if event == "DELETED":
            self._claims.pop(name, None)
            return
        self._claims[name] = claim
        for other in self._claims.values():
            if other is not claim and _overlap(claim, other):
                self._conflict(claim, other)

    def _conflict(self, one: JSON, other: JSON) -> None:
        names = sorted((one["metadata"]["name"], other["metadata"]["name"]))
        states = [claim.get("status", {}).get("state", "") for claim in (one, other)]
        self.contested.add(frozenset(names))
        if self._strictly or all(state in IN_USE for state in states):
            self.violations.append(f"claims {names} overlap ({states})")

    def _pod(self, event: str, pod: JSON) -> None:
        self.seen["pods"] += 1
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        gone = event == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if gone:
            self._pods.pop(uid, None)
            return
        before = self._pods.get(uid)
        if before is not None and before["spec"].get("nodeName", node) != node:
            self.violations.append(f"pod {pod['metadata']['name']} was bound twice")
        if not node or (before is not None and before["spec"].get("nodeName")):
            self._pods[uid] = pod
            return
        self._pods[uid] = pod
        self.seen["bindings"] += 1
        if self._strictly:  # of two leaders' pods the kubelet turns away what is too much
            self._weigh(node)

    def _weigh(self, node: str) -> None:
        if node not in self._nodes:
            return
        used: Counter[str] = Counter()
        for pod in self._pods.values():
            if pod["spec"].get("nodeName") == node:
                used += _asks(pod)
        offer = self._nodes[node]["status"]["allocatable"]
        for resource, amount in used.items():
            total = _amount(resource, offer.get(resource, "0"))
            if amount > total:
                self.violations.append(f"node {node} is oversold: {amount} of {total} {resource}")


def _overlap(one: JSON, other: JSON) -> bool:
    a, b = one["spec"], other["spec"]
    if a["gpuUUID"] != b["gpuUUID"]:
        return False
    first, second = a["migPlacement"], b["migPlacement"]
    return bool(first["start"] < second["start"] + second["size"] and second["start"] < first["start"] + first["size"])


def _asks(pod: JSON) -> Counter[str]:
    """Of app containers alone: the pods that are watched have no others."""
    asked: Counter[str] = Counter({"pods": 1})
    for container in pod["spec"]["containers"]:
        for resource, value in container.get("resources", {}).get("requests", {}).items():
            if resource == "cpu" or resource.startswith(COUNTED):
                asked[resource] += _amount(resource, value)
    return asked


def _amount(resource: str, value: str) -> int:
    text = str(value)
    if resource == "cpu":
        return int(text[:-1]) if text.endswith("m") else int(text) * 1000
    return int(text)
