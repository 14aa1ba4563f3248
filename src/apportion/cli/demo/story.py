"""The story, step by step; each step promises something and is kept only if the cluster shows it.

The steps speak to the cluster as a user would: Deployments are created, scaled and deleted, the rest is watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apportion.apis import kinds, names
from apportion.cli.demo import workloads
from apportion.cli.demo.world import Json, mig_uuid
from apportion.cluster import errors
from apportion.cluster.client import PatchType

if TYPE_CHECKING:
    from apportion.cli.demo.world import World

TEAMS = {"train": 8, "serve": 6}
PLACES = sum(TEAMS.values())
PATIENCE = 40.0
PROMPT = 2.0


@dataclass
class Step:
    """One promise of the story and what became of it."""

    promise: str
    act: Callable[[], Awaitable[str]]
    kept: bool | None = None
    begun: bool = False
    detail: str = ""
    seconds: float = 0.0


class BrokenPromiseError(Exception):
    """The cluster did not do what the step promised; the text says what was seen instead."""


class Story:
    """Fourteen slices fill two GPUs; a fifteenth waits, and runs; an agent dies; everything is given back."""

    def __init__(self, world: World, leftovers: Callable[[], list[str]]) -> None:
        self._world = world
        self._client = world.client
        self._leftovers = leftovers
        self.steps = [
            Step(f"{PLACES} pods of 1g.5gb fill two A100s, each with a slice of its own", self.fill),
            Step("the next pod waits, and is told why in numbers", self.wait_in_line),
            Step("one pod goes: the waiting one takes its place within 2 s", self.move_up),
            Step("the node agent is killed: slices stay, it comes back", self.survive),
            Step("one container with 1g.5gb and 2g.10gb sees both slices", self.mix),
            Step("all is deleted: no claim, no slice, no CDI file is left", self.give_back),
        ]

    async def play(self, told: Callable[[Step], None]) -> bool:
        await self._create_namespace()
        loop = asyncio.get_running_loop()
        for step in self.steps:
            start = loop.time()
            step.begun = True
            try:
                step.detail = await step.act()
                step.kept = True
            except (BrokenPromiseError, errors.ApiError) as broken:
                step.detail = str(broken)
                step.kept = False
            step.seconds = loop.time() - start
            told(step)
            if not step.kept:
                return False
        return True

    async def fill(self) -> str:
        for team, replicas in TEAMS.items():
            await self._deploy(team, replicas=replicas, slices={"1g.5gb": 1})
        await self._expect(
            lambda: len(self._teams()) == PLACES, f"only {{}} of {PLACES} pods run", lambda: len(self._teams())
        )
        uuids = {mig_uuid(claim) for claim in self._world.claims_of(self._teams())}
        if len(uuids) != PLACES or "" in uuids:
            raise BrokenPromiseError(f"{PLACES} pods, but {len(uuids)} different slices")
        await self._logs_name_the_own_slices(self._teams())
        return f"{PLACES} pods, {len(uuids)} MIG devices"

    async def wait_in_line(self) -> str:
        await self._deploy("late", replicas=1, slices={"1g.5gb": 1})
        await self._expect(
            lambda: any(reason for name, reason in self._world.waiting() if name.startswith("late-")),
            "no event says why the pod waits",
        )
        return next(reason for name, reason in self._world.waiting() if name.startswith("late-"))

    async def move_up(self) -> str:
        loop = asyncio.get_running_loop()
        await self._scale("serve", TEAMS["serve"] - 1)
        await self._expect(lambda: len(self._world.claims.items()) < PLACES, "the slice was not given back")
        freed = loop.time()
        await self._expect(lambda: len(self._world.running("late")) == 1, "the waiting pod did not start")
        took = loop.time() - freed
        if took > PROMPT:
            raise BrokenPromiseError(f"it took {took:.1f} s")
        return f"{took:.2f} s after the slice was free"

    async def survive(self) -> str:
        held = self._held()
        agent = next(pod for pod in self._world.planes.items() if _app(pod) == names.AGENT_APP)
        name, uid = agent["metadata"]["name"], agent["metadata"]["uid"]
        await self._client.delete(kinds.PODS, name, namespace=names.DAS_NAMESPACE, grace=0)
        await self._expect(lambda: self._agent_ready(other_than=uid), "the agent did not come back")
        if self._held() != held:
            raise BrokenPromiseError("running pods did not keep their slices")
        return f"{len(held)} slices untouched"

    async def mix(self) -> str:
        await self._scale("train", 3)
        await self._deploy("mixed", replicas=1, slices={"1g.5gb": 1, "2g.10gb": 1})
        await self._expect(lambda: len(self._world.running("mixed")) == 1, "the pod does not run")
        await self._logs_name_the_own_slices(self._world.running("mixed"))
        return f"{names.VISIBLE_DEVICES} names 2 MIG devices"

    async def give_back(self) -> str:
        for app in (*TEAMS, "late", "mixed"):
            await self._client.delete(kinds.DEPLOYMENTS, app, namespace=workloads.NAMESPACE, propagation="Background")
        await self._expect(lambda: not self._world.pods.items(), "pods are left")
        await self._expect(lambda: not self._world.claims.items(), "claims are left")
        left = self._leftovers()
        if left:
            raise BrokenPromiseError("left on the node: " + ", ".join(left))
        return "everything is free"

    def _teams(self) -> list[Json]:
        return [pod for team in TEAMS for pod in self._world.running(team)]

    def _held(self) -> dict[str, str]:
        return {claim["metadata"]["name"]: mig_uuid(claim) for claim in self._world.claims.items()}

    def _agent_ready(self, *, other_than: str) -> bool:
        return any(
            _app(pod) == names.AGENT_APP and pod["metadata"]["uid"] != other_than and _is_ready(pod)
            for pod in self._world.planes.items()
        )

    async def _logs_name_the_own_slices(self, pods: list[Json]) -> None:
        """Each container printed its devices when it started: they must be those of the pod's own claims."""
        for pod in pods:
            name = pod["metadata"]["name"]
            printed = b"".join([chunk async for chunk in self._client.logs(workloads.NAMESPACE, name)]).decode()
            own = [mig_uuid(claim) for claim in self._world.claims_of([pod])]
            if sorted(printed.split("\n", 1)[0].strip().split(",")) != sorted(own):
                raise BrokenPromiseError(f"{name} sees {printed.strip()!r}, its claims are {own}")

    async def _create_namespace(self) -> None:
        try:
            await self._client.create(kinds.NAMESPACES, workloads.namespace())
        except errors.AlreadyExists:
            return

    async def _deploy(self, name: str, *, replicas: int, slices: dict[str, int]) -> None:
        body = workloads.deployment(name, replicas=replicas, slices=slices)
        await self._client.create(kinds.DEPLOYMENTS, body, namespace=workloads.NAMESPACE)

    async def _scale(self, name: str, replicas: int) -> None:
        await self._client.patch(
            kinds.DEPLOYMENTS,
            name,
            {"spec": {"replicas": replicas}},
            namespace=workloads.NAMESPACE,
            how=PatchType.merge,
        )

    async def _expect(
        self, holds: Callable[[], bool], otherwise: str, seen: Callable[[], object] | None = None
    ) -> None:
        if not await self._world.until(holds, within=PATIENCE):
            raise BrokenPromiseError(otherwise.format(seen()) if seen else otherwise)


def _app(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get(names.APP_LABEL, ""))


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
