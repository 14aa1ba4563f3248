"""The same through an API server: random changes of owners, PodGroups, queues and pods, a view that follows them, and
one that reads the cluster afresh."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from tests.builders import groups
from tests.scheduler.cluster import ApiCluster, until
from tests.view.followed import Followed, followed, read_afresh
from tests.view.groups.test_group_streams import state

FULL = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 50 if FULL else 2
STEPS = 60
TEAMS, GANGS = ("one", "two", "default-queue"), ("g1", "g2")

Json = dict[str, Any]


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_q02_q07_q11_a_view_that_follows_ends_with_what_a_fresh_one_reads(each_cluster: ApiCluster) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    for number in range(STREAMS):
        async with followed(each_cluster) as made:
            life = Life(made, random.Random(seed + number))
            for _ in range(STEPS):
                with suppress(errors.NotFound, errors.AlreadyExists):
                    await life.step()

            async def same(made: Followed = made) -> bool:
                return state(made.view) == state(await read_afresh(each_cluster))

            await until(same)
            await each_cluster.clear()


class Life:
    """Random events, each through the API."""

    def __init__(self, made: Followed, dice: random.Random) -> None:
        self._made, self._dice = made, dice
        self._client = made.client
        self._count = 0
        self._pods: list[str] = []
        self._jobs: list[Json] = []

    async def step(self) -> None:
        steps: tuple[tuple[int, Callable[[], Awaitable[Any]]], ...] = (
            (10, self._pod),
            (4, self._bind),
            (3, self._remove_pod),
            (4, self._job),
            (4, self._relabel),
            (2, self._remove_job),
            (4, self._pod_group),
            (2, lambda: self._remove(kinds.POD_GROUPS, self._dice.choice(GANGS))),
            (3, self._queue),
            (1, lambda: self._remove(kinds.QUEUES, self._dice.choice(TEAMS))),
        )
        await self._dice.choices([act for _, act in steps], [weight for weight, _ in steps])[0]()

    def _labels(self) -> Json:
        return {names.QUEUE_LABEL: self._dice.choice(TEAMS)} if self._dice.random() < 0.6 else {}

    async def _remove(self, kind: Kind, name: str) -> None:
        namespace = "default" if kind.namespaced else None
        await self._client.delete(kind, name, namespace=namespace, propagation="Background")

    async def _pod(self) -> None:
        self._count += 1
        name = f"p{self._count}"
        job = self._dice.choice([*self._jobs, None])
        grouped = {names.POD_GROUP: self._dice.choice(GANGS)} if self._dice.random() < 0.3 else {}
        node = "n1" if self._dice.random() < 0.3 else ""
        await self._made.pod(
            name, owner=job, node=node, labels=self._labels(), annotations=grouped, limits={"cpu": "1m"}
        )
        self._pods.append(name)

    async def _bind(self) -> None:
        name = self._dice.choice([*self._pods, "none"])
        pod = await self._client.get(kinds.PODS, name, namespace="default")
        with suppress(errors.Conflict):
            await self._client.bind("default", name, pod["metadata"]["uid"], "n1")
        status = {"status": {"phase": "Running", "startTime": f"2026-01-01T00:00:{self._dice.randrange(60):02}Z"}}
        await self._client.patch(kinds.PODS, name, status, namespace="default", subresource="status")

    async def _remove_pod(self) -> None:
        name = self._dice.choice([*self._pods, "none"])
        await self._client.delete(kinds.PODS, name, namespace="default", grace=0)

    async def _job(self) -> None:
        self._count += 1
        self._jobs.append(await self._made.create(kinds.JOBS, groups.job(f"j{self._count}", labels=self._labels())))

    async def _relabel(self) -> None:
        kind, names_of = self._dice.choice(
            ((kinds.PODS, self._pods), (kinds.JOBS, [job["metadata"]["name"] for job in self._jobs]))
        )
        labels = {names.QUEUE_LABEL: self._dice.choice((*TEAMS, None))}
        name = self._dice.choice([*names_of, "none"])
        await self._client.patch(kind, name, {"metadata": {"labels": labels}}, namespace="default")

    async def _remove_job(self) -> None:
        if self._jobs:
            await self._remove(kinds.JOBS, self._dice.choice(self._jobs)["metadata"]["name"])

    async def _pod_group(self) -> None:
        spec = {"queue": self._dice.choice(TEAMS)} if self._dice.random() < 0.5 else {}
        await self._made.create(
            kinds.POD_GROUPS, groups.pod_group(self._dice.choice(GANGS), self._dice.randint(1, 3), **spec)
        )

    async def _queue(self) -> None:
        await self._made.create(kinds.QUEUES, groups.queue(self._dice.choice(TEAMS), gpus=self._dice.choice((0, 2))))
