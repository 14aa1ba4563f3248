"""Why pods wait is worked out once for all that ask for the same, and delays nobody who has a place."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.request import Request
from apportion.core import group_turns
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.explanations.node_reasons import NODES_PER_STEP
from apportion.core.explanations.queue_advice import QueueAdvice
from apportion.core.filters import Checks
from apportion.core.node import NodeState
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.turns import Turn
from apportion.core.reasons import Reason
from apportion.scheduler import backlog as backlog_module
from apportion.scheduler import explanations as explanations_module
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.events import Reporter
from apportion.scheduler.explanations import Explanations
from tests.builders.accelerators import T4
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import our_pod, pod_request
from tests.core.evictions.worlds import World, queue
from tests.scheduler.cluster import ApiCluster, scheduling, until

INDEX = "batch.kubernetes.io/job-completion-index"
COUNT = 30


def explanations() -> float:
    return float(metrics.EXPLANATIONS._value.get())


async def indexed(cluster: ApiCluster, name: str, **options: Any) -> None:
    """Pods as an Indexed Job makes them: each with its own index and host name."""
    for number in range(COUNT):
        body = our_pod(f"{name}-{number}", **options)
        body["metadata"]["labels"] = {INDEX: str(number), "batch.kubernetes.io/job-name": name}
        body["spec"]["hostname"] = f"{name}-{number}"
        await cluster.client.create(kinds.PODS, body)


async def test_pods_of_an_indexed_job_cost_one_explanation(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    await cluster.node("n2", gpus=1)
    before = explanations()
    async with scheduling(cluster):
        await indexed(cluster, "large", slices={"7g.40gb": 3})
        said = {await cluster.waits(f"large-{number}") for number in range(COUNT)}
        assert len(said) == 1
        await indexed(cluster, "larger", slices={"7g.40gb": 4})
        for number in range(COUNT):
            await cluster.waits(f"larger-{number}")
        await cluster.pod("fits", slices={"1g.5gb": 1})
        await cluster.bound("fits")
    assert explanations() - before == 2


async def test_a_pod_that_waits_is_woken_by_what_happens_while_it_is_explained(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        for number in range(5):
            await cluster.pod("holder", slices={"7g.40gb": 1})
            await cluster.bound("holder")
            await cluster.pod("waits", slices={"7g.40gb": 1})
            if number % 2:
                await cluster.waits("waits")
            await cluster.delete("holder")
            await cluster.bound("waits")
            await cluster.delete("waits")

            async def gone() -> bool:
                return not await cluster.claims()

            await until(gone)


async def test_pods_that_wait_as_one_are_placed_in_the_order_of_all(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        await cluster.pod("holder", slices={"7g.40gb": 1}, priority=100)
        await cluster.bound("holder")
        await cluster.pod("older", slices={"3g.20gb": 1}, limits={"cpu": "1"})
        await cluster.waits("older")
        for number in range(3):
            await cluster.pod(f"important-{number}", slices={"3g.20gb": 1}, priority=75)
            await cluster.waits(f"important-{number}")
        await cluster.delete("holder")
        await cluster.bound("important-0", "important-1")
        await cluster.waits("important-2")
        await cluster.waits("older")

        await cluster.delete("important-0")
        await cluster.bound("important-2")
        await cluster.delete("important-1")
        await cluster.bound("older")


async def test_the_explanation_follows_the_cluster(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        await cluster.pod("waits", limits={names.NVIDIA_GPU: "1"})
        first = await cluster.waits("waits")
        assert first.startswith("0/1 nodes")
        await cluster.node("n2", gpus=1)

        async def told() -> bool:
            return (await cluster.waits("waits")).startswith("0/2 nodes")

        await until(told)


class _Texts(Reporter):
    """Remembers what pods are told."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def waits(self, request: Request, text: str) -> None:
        self.told[request.name] = text


def test_a_group_of_several_pods_is_explained_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "key_of", lambda _: "gang")
    ticks = itertools.count()
    monkeypatch.setattr(explanations_module.time, "monotonic", lambda: float(next(ticks)))
    looks: Counter[int] = Counter()
    steps = 0
    against = Checks.against

    def counted(checks: Checks, node: NodeState) -> Reason | None:
        looks[steps] += 1
        return against(checks, node)

    monkeypatch.setattr(Checks, "against", counted)
    fleet = fleet_of(*((node_facts(f"n-{n}"), [(T4, False)]) for n in range(300)))
    backlog, texts = Backlog(lambda: 0.0), _Texts()
    for name in ("first", "second"):
        backlog.offer(pod_request(name, gpus=1 if name == "first" else 2))
    work = Explanations(fleet, Policy(), backlog, texts, lambda: 0.0)
    (entry,) = backlog.take(())
    work.add(entry, entry.group)
    while work.due is not None:
        work.work(2.0)
        steps += 1
    assert texts.told["first"] == texts.told["second"]
    assert texts.told["first"].startswith("0/300 nodes are available for 2 x nvidia.com/gpu")
    assert max(looks.values()) <= 2 * NODES_PER_STEP


def test_q05_who_is_stopped_later_by_the_same_limit_is_told_at_once_and_nothing_is_worked_out_anew() -> None:
    world = World({"n": 4}, [queue("a", 4, limit=1)])
    world.run(world.request("runs", "a", gpus=1))
    now = [100.0]
    backlog, texts = Backlog(lambda: now[0]), _Texts()
    fleet, entitled = world.fleet, Entitlements(world.fleet)
    advice = QueueAdvice(fleet, world.policy, entitled, lambda: RunningGroups(fleet))
    work = Explanations(fleet, world.policy, backlog, texts, lambda: now[0], advice)

    def stop(name: str) -> None:
        backlog.offer(world.request(name, "a", gpus=1))
        for entry in backlog.take(()):
            turn = group_turns.next_turn(fleet, entry.group.members)
            assert isinstance(turn, Turn)
            work.add(entry, entry.group, group_turns.stopped(fleet, turn))

    stop("first")
    assert not texts.told, "that is worked out between cycles"
    work.work(10)
    assert (
        "1 of 1 GPU in use, 1 more requested. Cheapest change: increase spec.resources.gpu.limit" in texts.told["first"]
    )
    before = explanations()
    stop("second")
    work.work(0.01)
    assert texts.told["second"] == texts.told["first"]
    assert explanations() == before
    now[0] += explanations_module.STOPPED_PAUSE_SECONDS
    work.work(10)
    assert explanations() == before + 1
