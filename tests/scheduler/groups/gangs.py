"""Gangs of an owner, as a controller makes them, and what the cluster says about their PodGroups."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from tests.builders import groups, pods
from tests.scheduler.cluster import ApiCluster, until, until_served

Json = dict[str, Any]
LEADER_WORKER_SETS = Kind("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
TRAININGS = Kind("example.com", "v1", "trainings", "Training")
GPU = {names.NVIDIA_GPU: "1"}
INDEX = "leaderworkerset.sigs.k8s.io/group-index"


class Gangs:
    """Owners whose replica is a gang: LeaderWorkerSets, and Trainings, which no row knows."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.cluster, self.client = cluster, cluster.client

    async def install(self) -> None:
        for kind in (LEADER_WORKER_SETS, TRAININGS):
            with suppress(errors.AlreadyExists):
                definition = groups.definition(kind.group, kind.kind, kind.version)
                await self.client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
            await until_served(self.client, kind)

    async def clear(self) -> None:
        for kind in (kinds.PODS, LEADER_WORKER_SETS, TRAININGS, kinds.POD_GROUPS, kinds.QUEUES, kinds.KAI_CONFIGS):
            for found in (await self.client.list(kind)).items:
                meta = found["metadata"]
                if meta.get("namespace", "default") == "default":
                    with suppress(errors.NotFound):
                        await self.client.delete(kind, meta["name"], namespace=meta.get("namespace"), grace=0)

    async def owner(self, name: str, size: int, *, kind: Kind = LEADER_WORKER_SETS, **options: Any) -> Json:
        spec = {"leaderWorkerTemplate": {"size": size}} if kind is LEADER_WORKER_SETS else {"pods": size}
        body = groups.owner(kind.api_version, kind.kind, name, spec=spec, **options)
        return {"apiVersion": kind.api_version, "kind": kind.kind, **await self.client.create(kind, body)}

    async def resize(self, name: str, size: int) -> None:
        patch = {"spec": {"leaderWorkerTemplate": {"size": size}}}
        await self.client.patch(LEADER_WORKER_SETS, name, patch, namespace="default")

    async def pod(self, name: str, owner: Json | None = None, *, index: int = 0, **options: Any) -> str:
        labels = {**({INDEX: str(index)} if owner is not None else {}), **options.pop("labels", {})}
        body = pods.our_pod(name, limits=GPU, labels=labels, **options)
        made = await self.client.create(kinds.PODS, groups.owned(body, owner) if owner is not None else body)
        return str(made["metadata"]["uid"])

    async def gang(self, name: str, size: int, **options: Any) -> Json:
        """An owner with all its pods: NAME-0, NAME-1, ..."""
        owner = await self.owner(name, size, **options)
        for number in range(size):
            await self.pod(f"{name}-{number}", owner)
        return owner

    async def pod_groups(self) -> list[Json]:
        found = (await self.client.list(kinds.POD_GROUPS)).items
        return sorted(found, key=lambda group: str(group["metadata"]["name"]))

    async def pod_group(self, minimum: int | None = None, **spec: Any) -> Json:
        """The only one, once its spec says this."""
        wanted = {**({"minMember": minimum} if minimum is not None else {}), **spec}

        async def found() -> Json | None:
            present = await self.pod_groups()
            assert len(present) < 2, [group["metadata"]["name"] for group in present]
            match = present and all(present[0]["spec"].get(field) == value for field, value in wanted.items())
            return present[0] if match else None

        return await until(found)

    async def status(self, name: str, **fields: Any) -> Json:
        """Of a PodGroup, once it says this."""

        async def found() -> Json | None:
            status: Json = (await self.client.get(kinds.POD_GROUPS, name, namespace="default")).get("status", {})
            return status if all(status.get(field) == value for field, value in fields.items()) else None

        return await until(found)

    async def event(self, kind: str, name: str, reason: str, *words: str) -> str:
        """Wait for an event on an object whose message has these words."""

        async def found() -> str | None:
            for event in (await self.client.list(kinds.EVENTS)).items:
                about = event["involvedObject"]
                same = (about["kind"], about["name"], event["reason"]) == (kind, name, reason)
                if same and all(word in event["message"] for word in words):
                    return str(event["message"])
            return None

        return await until(found)

    async def config(self, **grouper: Any) -> None:
        body = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"podGrouper": grouper}}
        await self.client.apply(kinds.KAI_CONFIGS, body, field_manager="test")

    async def named_group(self, pod: str) -> str:
        return (await self.cluster.get(pod)).metadata.annotations.get(names.POD_GROUP, "")

    async def pass_time(self, seconds: float = 1.5) -> None:
        """For something that must not happen."""
        await asyncio.sleep(seconds)
