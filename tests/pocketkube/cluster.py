"""An embedded cluster in the test's own process, and waiting for what it should show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from apportion.apis import kinds
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from pocketkube.cluster import EmbeddedCluster
from pocketkube.kubelet.containers.backoff import BackOffSettings
from pocketkube.kubelet.settings import KubeletSettings
from pocketkube.node_pools import Pool

Json = dict[str, Any]
PATIENCE = 30.0
QUICK = KubeletSettings(
    restart=BackOffSettings(initial=0.2, maximum=1.0),
    retry=BackOffSettings(initial=0.1, maximum=0.5, forget_after=60.0),
)


class RunningCluster:
    """A cluster, an administrator's client, and one namespace to work in."""

    namespace = "default"

    def __init__(self, cluster: EmbeddedCluster, client: Client) -> None:
        self.pocketkube = cluster
        self.client = client

    async def create(self, kind: Kind, body: Json) -> Json:
        return await self.client.create(kind, body, namespace=self.namespace if kind.namespaced else None)

    async def get(self, kind: Kind, name: str) -> Json:
        return await self.client.get(kind, name, namespace=self.namespace if kind.namespaced else None)

    async def find(self, kind: Kind, name: str) -> Json | None:
        try:
            return await self.get(kind, name)
        except errors.NotFound:
            return None

    async def list(self, kind: Kind, labels: str | None = None) -> list[Json]:
        return (await self.client.list(kind, namespace=self.namespace, labels=labels)).items

    async def patch(self, kind: Kind, name: str, patch: Json) -> Json:
        return await self.client.patch(kind, name, patch, namespace=self.namespace if kind.namespaced else None)

    async def delete(self, kind: Kind, name: str, **options: Any) -> None:
        await self.client.delete(kind, name, namespace=self.namespace if kind.namespaced else None, **options)

    async def pod(self, name: str, **spec: Any) -> Json:
        return await self.create(kinds.PODS, pod(name, **spec))

    async def until(self, kind: Kind, name: str, holds: Callable[[Json], bool], *, within: float = PATIENCE) -> Json:
        """The object once it is as wanted; the last state is in the failure."""
        last: Json | None = None
        try:
            async with asyncio.timeout(within):
                while True:
                    last = await self.find(kind, name)
                    if last is not None and holds(last):
                        return last
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{kind.kind} {name} after {within} s: {last}") from None

    async def until_phase(self, name: str, phase: str, *, within: float = PATIENCE) -> Json:
        return await self.until(kinds.PODS, name, lambda pod: pod["status"].get("phase") == phase, within=within)

    async def until_gone(self, kind: Kind, name: str, *, within: float = PATIENCE) -> None:
        await self.until_true(lambda: self.find(kind, name), lambda found: found is None, within=within)

    async def until_pods(
        self, labels: str, holds: Callable[[list[Json]], bool], *, within: float = PATIENCE
    ) -> list[Json]:
        return await self.until_true(lambda: self.list(kinds.PODS, labels), holds, within=within)

    async def until_true(
        self, look: Callable[[], Any], holds: Callable[[Any], bool], *, within: float = PATIENCE
    ) -> Any:
        last: Any = None
        try:
            async with asyncio.timeout(within):
                while not holds(last := await look()):  # noqa: ASYNC110  an API has no event to wait for
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"after {within} s: {last}") from None
        return last

    async def logs(self, name: str, container: str | None = None, **options: Any) -> str:
        chunks = [chunk async for chunk in self.client.logs(self.namespace, name, container, **options)]
        return b"".join(chunks).decode()

    async def until_log(self, name: str, text: str, *, within: float = PATIENCE) -> str:
        async def look() -> str:
            try:
                return await self.logs(name)
            except errors.BadRequest:
                return ""

        found: str = await self.until_true(look, lambda log: text in log, within=within)
        return found

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of all events about an object."""
        listing = await self.client.list(kinds.EVENTS, namespace=self.namespace)
        return [(e["reason"], e["message"]) for e in listing.items if e["involvedObject"]["name"] == name]


def pod(name: str, *command: str, image: str = "busybox", labels: Json | None = None, **spec: Any) -> Json:
    """A pod with one container `c`; `container` adds to it."""
    container: Json = {"name": "c", "image": image, **spec.pop("container", {})}
    if command:
        container["command"] = list(command)
    spec.setdefault("terminationGracePeriodSeconds", 1)
    spec.setdefault("containers", [container])
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def template(labels: Json, *command: str, **spec: Any) -> Json:
    made = pod("", *command, **spec)
    return {"metadata": {"labels": labels}, "spec": made["spec"]}


@asynccontextmanager
async def embedded(
    tmp_path: Path, *, nodes: int = 1, pools: list[Pool] | None = None, **options: Any
) -> AsyncIterator[RunningCluster]:
    plans = [plan for pool in pools or [Pool(name="node", nodes=nodes)] for plan in pool.plans()]
    options.setdefault("kubelet", QUICK)
    async with started(EmbeddedCluster(plans, kubeconfig=tmp_path / "kubeconfig", **options)) as cluster:
        yield cluster


@asynccontextmanager
async def started(cluster: EmbeddedCluster) -> AsyncIterator[RunningCluster]:
    async with cluster, cluster.client() as client:
        yield RunningCluster(cluster, client)
