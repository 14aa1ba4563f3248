"""The same through an API server: a scheduler at work, a view that follows, and one that reads the cluster afresh.

When the cluster has come to rest, every pending pod has an event of the scheduler with the answer of `why`, and the
view that followed all along counts what the fresh ones count.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable

import pytest

from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.core.policies import Policy
from apportion.view import why
from apportion.view.informers import Informers
from apportion.view.scene import scene
from apportion.view.view import View
from tests.builders import claims, pods
from tests.scheduler.cluster import NAMESPACE, ApiCluster, embedded, scheduling, until
from tests.view.test_one_answer import counted

FULL = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 100 if FULL else 4
STEPS = 20
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb")


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_x01_s09_what_the_scheduler_tells_is_what_why_says() -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    for number in range(STREAMS):
        async with embedded() as cluster:
            await play(cluster, random.Random(seed + number))


async def play(cluster: ApiCluster, dice: random.Random) -> None:
    await cluster.node("n1", gpus=2)
    await cluster.node("n2", gpus=1)
    await cluster.node("n3", gpus=3, mig=1, resources={names.NVIDIA_GPU: "2"})
    view = View()
    life = Life(cluster, dice)
    async with Informers(cluster.client, view, Installation()).following():
        for _ in range(STEPS):
            await life.step()
        life.led = True
        async with scheduling(cluster):
            for _ in range(STEPS):
                await life.step()
            await until(lambda: at_rest(cluster, view), within=150)  # a reason may be out of date for 60 s


async def at_rest(cluster: ApiCluster, followed: View) -> bool:
    view, fallback = View(), View(volumes=False)
    for each in (view, fallback):
        await Informers(cluster.client, each, Installation()).load()
    if any(claim.metadata.deleting for claim in view.claims) or not (
        counted(view.fleet) == counted(followed.fleet) == counted(fallback.fleet)
    ):
        return False
    if _drawn(view) != _drawn(followed):
        return False
    answers = [why.answer(view, waiting.pod, Policy()) for waiting in view.waiting]
    return all(answer.told == answer.sentence for answer in answers if answer.state is not why.PodState.GATED)


def _drawn(view: View) -> tuple[object, ...]:
    """What `top` shows; which of several free GPUs a pod has is told by no agent here."""
    shown = scene(view)
    slices = {gpu.uuid: (gpu.slices, gpu.healthy) for gpus in shown.nodes.values() for gpu in gpus}
    owners = {name: sorted(gpu.owner for gpu in gpus) for name, gpus in shown.nodes.items()}
    return slices, owners, shown.notes, shown.waiting


class Life:
    """Random events, each through the API."""

    def __init__(self, cluster: ApiCluster, dice: random.Random) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._dice = dice
        self._pods: dict[str, str] = {}
        self._count = 0
        self.led = False

    async def step(self) -> None:
        steps: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (10, self._create),
            (3, self._delete),
            (3, self._end),
            (3, self._cordon),
            (3, self._agent),
            (3, self._claim),
        )
        await self._dice.choices([act for _, act in steps], [weight for weight, _ in steps])[0]()

    def _name(self) -> str:
        return self._dice.choice(list(self._pods)) if self._pods else ""

    async def _create(self) -> None:
        self._count += 1
        name = f"p{self._count}"
        if self._dice.random() < 0.2:
            asked = {"limits": {names.NVIDIA_GPU: str(self._dice.choice((1, 2)))}}
        else:
            asked = {"slices": {self._dice.choice(PROFILES): self._dice.choice((1, 1, 2))}}
        gates = ["example.com/wait"] if self._dice.random() < 0.1 else []
        self._pods[name] = await self._cluster.pod(name, gates=gates, **asked)

    async def _delete(self) -> None:
        name = self._name()
        if name:
            del self._pods[name]
            await self._cluster.delete(name)

    async def _end(self) -> None:
        name = self._name()
        if name and (await self._cluster.get(name)).spec.node_name:
            await self._cluster.set_phase(name, "Succeeded")

    async def _cordon(self) -> None:
        cordoned = {"spec": {"unschedulable": self._dice.random() < 0.5}}
        await self._client.patch(kinds.NODES, self._dice.choice(("n1", "n2", "n3")), cordoned)

    async def _agent(self) -> None:
        await self._cluster.agent_ready(self._dice.choice(("n1", "n2", "n3")), ready=self._dice.random() < 0.6)

    async def _claim(self) -> None:
        """What a leader leaves behind that dies between claim and binding."""
        name = self._name()
        if self.led or not name:
            return
        if any(claim.spec.pod_ref.uid == self._pods[name] for claim in await self._cluster.claims()):
            return
        profile = self._dice.choice(PROFILES)
        node = self._dice.choice(("n1", "n2"))
        body = pods.pod(name, uid=self._pods[name])
        made = claims.claim(body, node=node, gpu=self._cluster.gpus[node][0], start=0, profile=profile)
        await self._client.create(kinds.ALLOCATION_CLAIMS, made, namespace=NAMESPACE)
