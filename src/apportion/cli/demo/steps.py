"""The steps of the demo; each one states an expectation and passes only if the cluster meets it.

The steps use the cluster as a user would: they create, scale and delete Deployments and watch the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.cli.demo import workloads
from apportion.cli.demo.observation import Json, mig_uuid
from apportion.cluster import errors
from apportion.cluster.client import PatchType

if TYPE_CHECKING:
    from apportion.cli.demo.observation import Observation

TEAMS = {"train": 8, "serve": 6}
PLACES = sum(TEAMS.values())
# With the pod of "late", five slices are left. The two GPUs have six places for 2g.10gb, so one of them is free
# whichever pods the Deployments remove.
LEFT_FOR_MIXED = {"train": 2, "serve": 2}
STEP_TIMEOUT = 40.0
START_LIMIT = 2.0
LOG_PAUSE = 0.1


@dataclass
class Step:
    """One step: what is expected, and the result."""

    expectation: str
    act: Callable[[], Awaitable[str]]
    passed: bool | None = None
    started: bool = False
    detail: str = ""
    seconds: float = 0.0


class StepFailedError(Exception):
    """The cluster did not meet the expectation; the text says what was observed instead."""


class Demo:
    """Fourteen slices fill two GPUs; a fifteenth pod is pending, then runs; the agent is killed; all is deleted."""

    def __init__(self, observed: Observation, leftovers: Callable[[], list[str]]) -> None:
        self._observed = observed
        self._client = observed.client
        self._leftovers = leftovers
        self.steps = [
            Step(f"{PLACES} pods with 1g.5gb run on two A100s, each with its own slice", self.fill),
            Step("the next pod is pending, and its event gives the reason", self.pend),
            Step("one pod is deleted: the pending pod runs within 2 s", self.start_pending),
            Step("the node agent is killed: it restarts, and all slices remain", self.restart_agent),
            Step("one container with 1g.5gb and 2g.10gb gets both slices", self.mix_profiles),
            Step("all pods are deleted: no claim, slice or CDI file remains", self.clean_up),
        ]

    async def run(self, on_step: Callable[[Step], None]) -> bool:
        await self._create_namespace()
        loop = asyncio.get_running_loop()
        for step in self.steps:
            start = loop.time()
            step.started = True
            try:
                step.detail = await step.act()
                step.passed = True
            except (StepFailedError, errors.ApiError) as failure:
                step.detail = str(failure)
                step.passed = False
            step.seconds = loop.time() - start
            on_step(step)
            if not step.passed:
                return False
        return True

    async def fill(self) -> str:
        for team, replicas in TEAMS.items():
            await self._deploy(team, replicas=replicas, slices={"1g.5gb": 1})
        await self._expect(
            lambda: len(self._teams()) == PLACES, f"only {{}} of {PLACES} pods are running", lambda: len(self._teams())
        )
        uuids = {mig_uuid(claim) for claim in self._observed.claims_of(self._teams())}
        if len(uuids) != PLACES or "" in uuids:
            raise StepFailedError(f"{PLACES} pods have only {len(uuids)} different slices")
        await self._verify_logs(self._teams())
        return f"{PLACES} pods, {len(uuids)} MIG devices"

    async def pend(self) -> str:
        await self._deploy("late", replicas=1, slices={"1g.5gb": 1})
        await self._expect(
            lambda: any(self._observed.reason(pod) for pod in self._observed.pods_of("late")),
            "no event gives the reason for the pending pod",
        )
        return next(reason for pod in self._observed.pods_of("late") if (reason := self._observed.reason(pod)))

    async def start_pending(self) -> str:
        loop = asyncio.get_running_loop()
        await self._scale("serve", TEAMS["serve"] - 1)
        await self._expect(lambda: len(self._observed.claims.items()) < PLACES, "the slice was not released")
        freed = loop.time()
        await self._expect(lambda: len(self._observed.running("late")) == 1, "the pending pod did not start")
        took = loop.time() - freed
        if took > START_LIMIT:
            raise StepFailedError(f"the pod started after {took:.1f} s")
        return f"running {took:.2f} s after the slice was released"

    async def restart_agent(self) -> str:
        held = self._held()
        agent = next(pod for pod in self._observed.planes.items() if _app(pod) == names.AGENT_APP)
        name, uid = agent["metadata"]["name"], agent["metadata"]["uid"]
        await self._client.delete(kinds.PODS, name, namespace=Installation.namespace, grace=0)
        await self._expect(lambda: self._agent_ready(other_than=uid), "the agent did not restart")
        if self._held() != held:
            raise StepFailedError("running pods did not keep their slices")
        return f"{len(held)} slices unchanged"

    async def mix_profiles(self) -> str:
        for team, replicas in LEFT_FOR_MIXED.items():
            await self._scale(team, replicas)
        await self._deploy("mixed", replicas=1, slices={"1g.5gb": 1, "2g.10gb": 1})
        await self._expect(lambda: len(self._observed.running("mixed")) == 1, "the pod is not running")
        await self._verify_logs(self._observed.running("mixed"))
        return f"{names.VISIBLE_DEVICES} lists 2 MIG devices"

    async def clean_up(self) -> str:
        for app in (*TEAMS, "late", "mixed"):
            await self._client.delete(kinds.DEPLOYMENTS, app, namespace=workloads.NAMESPACE, propagation="Background")
        await self._expect(lambda: not self._observed.pods.items(), "some pods remain")
        await self._expect(lambda: not self._observed.claims.items(), "some claims remain")
        left = self._leftovers()
        if left:
            raise StepFailedError("remaining on the node: " + ", ".join(left))
        return "all capacity is available"

    def _teams(self) -> list[Json]:
        return [pod for team in TEAMS for pod in self._observed.running(team)]

    def _held(self) -> dict[str, str]:
        return {claim["metadata"]["name"]: mig_uuid(claim) for claim in self._observed.claims.items()}

    def _agent_ready(self, *, other_than: str) -> bool:
        return any(
            _app(pod) == names.AGENT_APP and pod["metadata"]["uid"] != other_than and _is_ready(pod)
            for pod in self._observed.planes.items()
        )

    async def _verify_logs(self, pods: list[Json]) -> None:
        """Each container prints its devices at start; they must be those of the pod's claims."""
        for pod in pods:
            name = pod["metadata"]["name"]
            printed = await self._first_line_of_log(name)
            own = [mig_uuid(claim) for claim in self._observed.claims_of([pod])]
            if sorted(printed.split(",")) != sorted(own):
                raise StepFailedError(f"{name} has the devices {printed!r}, but its claims are {own}")

    async def _first_line_of_log(self, name: str) -> str:
        """A container that runs may not have printed anything yet: waits until it has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STEP_TIMEOUT):
                while True:
                    printed = b"".join([chunk async for chunk in self._client.logs(workloads.NAMESPACE, name)]).decode()
                    if "\n" in printed:
                        return printed.split("\n", 1)[0].strip()
                    await asyncio.sleep(LOG_PAUSE)
        return ""

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
        if not await self._observed.until(holds, within=STEP_TIMEOUT):
            raise StepFailedError(otherwise.format(seen()) if seen else otherwise)


def _app(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get(names.APP_LABEL, ""))


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
