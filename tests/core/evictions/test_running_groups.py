"""Groups that run are kept up to date: always the same as if they were read anew."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.placements import SlicePlacement
from apportion.core.evictions import room, running_groups
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.groups import Gang, Group
from apportion.core.queues.tree import QueueTree
from apportion.lab.scenarios import simulation
from tests.core.evictions.streams import Stream
from tests.core.evictions.worlds import World, queue

SOAK = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 1_000 if SOAK else 40
CHANGES = 25


@pytest.mark.soak
def test_q06_groups_that_are_kept_up_to_date_are_as_if_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    monkeypatch.setattr(running_groups, "_PODS_PER_STEP", 3)
    monkeypatch.setattr(running_groups, "_NODES_PER_STEP", 1)
    met: Counter[str] = Counter()
    for number in range(STREAMS):
        Kept(seed + number, monkeypatch, met).check()
    rare = {name: met[name] for name in Kept.CHANGES if met[name] < STREAMS // 20}
    assert not rare, "these hardly happened"


class Kept:
    """A random stream whose scheduler keeps the groups that run, and changes of every kind."""

    CHANGES = (
        "arrive",
        "end",
        "cycle",
        "release",
        "gang",
        "queues",
        "pod",
        "foreign",
        "node",
        "trial",
        "claim",
        "plan",
        "undone plan",
    )

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, met: Counter[str]) -> None:
        self.stream = Stream(seed)
        self.rng, self.fleet, self.met, self.seed = self.stream.rng, self.stream.fleet, met, seed
        self.running = RunningGroups(self.fleet)
        monkeypatch.setattr(simulation, "RunningGroups", self.updated)

    def check(self) -> None:
        for _ in range(4):
            self.stream.arrive()
        for number in range(CHANGES):
            change = self.rng.choice(self.CHANGES)
            act: Callable[[], Any] = getattr(self, f"_{change.replace(' ', '_')}")
            if act() is not False:
                self.met[change] += 1
            if self.rng.random() < 0.5:
                found = self.updated(self.fleet, number)
                assert said(found) == said(RunningGroups(self.fleet, number)), f"stream {self.seed}: after {change}"

    def updated(self, _: Any, now: int) -> RunningGroups:
        if self.rng.random() < 0.5:
            steps = self.running.steps()
            for _ in range(self.rng.randint(0, 6)):
                next(steps, None)
                if self.rng.random() < 0.2:
                    self._release()
        self.running.update(now)
        return self.running

    def _arrive(self) -> None:
        self.stream.arrive()

    def _end(self) -> None:
        self.stream.end()

    def _cycle(self) -> None:
        self.stream.simulation.cycle()

    def _release(self) -> bool:
        uid = self._any_pod()
        if uid is not None:
            self.fleet.set_releasing(uid, releasing=uid not in self.fleet.releasing)
        return uid is not None

    def _gang(self) -> bool:
        key = self.rng.choice([*sorted(self.fleet.group_pods), ""])
        known = self.fleet.gangs.get(key)
        if self.rng.random() < 0.2:
            self.fleet.forget_gang(key)
        elif known is not None:
            about = self.rng.choice([{"minimum": self.rng.randint(1, 3)}, {"started": 7}, {"created": "2025"}])
            self.fleet.set_gang(msgspec.structs.replace(known, **about))
        else:
            self.fleet.set_gang(Gang(key, created="2026-01-01T00001"))
        return bool(key)

    def _queues(self) -> None:
        queues = list(self.fleet.accounts.tree.queues.values())
        chosen = self.rng.choice(queues)
        queues.remove(chosen)
        queues.append(msgspec.structs.replace(chosen, priority=self.rng.choice([99, 100, 101])))
        self.fleet.accounts.set_tree(QueueTree(queues))

    def _pod(self) -> bool:
        """It changes in one way or the other, possibly in a way that only a test can think of."""
        change = self.rng.choice(
            [
                {"priority": self.rng.choice([40, 60, 125])},
                {"owner": None},
                {"group": "other"},
                {"queue": QueueName("nowhere")},
                {"created": "2024"},
            ]
        )
        return self._replaced(**change)

    def _foreign(self) -> bool:
        return self._replaced(scheduler_name="default-scheduler")

    def _replaced(self, **change: Any) -> bool:
        uid = self._any_pod()
        if uid is not None:
            node = self.fleet.pod_nodes[uid]
            self.fleet.add_pod(msgspec.structs.replace(self.fleet.nodes[node].pods[uid], **change), node)
        return uid is not None

    def _node(self) -> bool:
        """One goes, and comes back or not."""
        name = self.rng.choice(sorted(self.fleet.nodes))
        node = self.fleet.nodes[name]
        facts, gpus = node.facts, [gpu.facts for gpu in node.gpus.values()]
        if facts is None:
            return False  # gone already
        self.fleet.remove_node(name)
        if self.rng.random() < 0.8 or len(self.fleet.nodes) <= 1:
            self.fleet.set_node(facts)
            self.fleet.set_gpus(name, gpus, ready=True)
        return True

    def _trial(self) -> bool:
        uid = self._any_pod()
        mark = self.fleet.checkpoint()
        if uid is not None:
            self.fleet.take_away(uid)
        self.fleet.rollback(mark)
        return uid is not None

    def _claim(self) -> bool:
        """In the name of any pod, on any GPU."""
        uid, gpus = self._any_pod(), sorted(self.fleet.gpu_nodes)
        if uid is None or not gpus:
            return False
        key = f"claim-{self.rng.randint(0, 3)}"
        if key in self.fleet.slices:
            self.fleet.remove_slice(key)
        else:
            self.fleet.add_slice(key, SlicePlacement(self.rng.choice(gpus), "1g.5gb", 0, 1), uid)
        return True

    def _plan(self) -> bool:
        return self._planned() is not None

    def _undone_plan(self) -> bool:
        statement = self._planned()
        if statement is None:
            return False
        statement.undo(self.fleet)
        return True

    def _planned(self) -> Any:
        """For somebody who waits: with everybody entitled to everything."""
        pending = list(self.stream.simulation.pending.values())
        if not pending:
            return None
        request = msgspec.structs.replace(self.rng.choice(pending), priority=99, group=None)
        if self.fleet.holds(request.uid) or request.uid in self.fleet.pod_nodes:
            return None
        running = self.running if self.rng.random() < 0.5 else self.updated(self.fleet, 0)
        policy = self.stream.simulation._policy
        return room.make_room(self.fleet, Group.of(request), policy, self.stream.simulation.shares, running)

    def _any_pod(self) -> PodUID | None:
        return self.rng.choice(sorted(self.fleet.pod_nodes)) if self.fleet.pod_nodes else None


def said(running: RunningGroups) -> dict[str, Any]:
    """Everything that searches and rules can ask."""
    groups = {
        group.key: (
            *(group.told, group.gang, group.queue, group.level, group.spare),
            [(pod.uid, pod.request, pod.node, pod.amounts, pod.birth, pod.spare) for pod in group.pods],
            [group.spared_by({pod.uid}) for pod in group.pods],
            all(pod.group is group for pod in group.pods),
        )
        for group in running
    }
    return {
        "groups": groups,
        "ages": [pod.uid for pod in sorted(running.pods, key=lambda pod: pod.age)],
        "pods": [pod.uid for pod in running.pods],
        "nodes": {name: [pod.uid for pod in pods] for name, pods in running.on_node.items()},
        "queues": running.queues,
        "smallest": running.smallest_movable,
        "now": running.now,
    }


def test_q06_only_groups_that_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({f"n{number}": 4 for number in range(5)}, [queue("a")])
    for number in range(20):
        world.run(world.request(f"p{number}", "a", gpus=1))
    running = RunningGroups(world.fleet)
    read: list[str] = []
    again = RunningGroups._read

    def noted(self: RunningGroups, key: str, before: Any) -> Any:
        read.append(key)
        return again(self, key, before)

    monkeypatch.setattr(RunningGroups, "_read", noted)
    running.update(1)
    assert read == []
    world.fleet.set_releasing(PodUID("uid-p3"), releasing=True)
    world.fleet.remove_pod(PodUID("uid-p4"))
    running.update(2)
    assert sorted(read) == ["uid-p3", "uid-p4"]
    assert [pod.uid for pod in running.pods] == [f"uid-p{n}" for n in range(19, -1, -1) if n not in {3, 4}]


def test_q06_a_plan_that_is_undone_leaves_the_same_victims() -> None:
    world = World({"n": 2}, [queue("a"), queue("b", 2)])
    world.run(world.request("a0", "a", gpus=1))
    world.run(world.request("a1", "a", gpus=1))
    running = RunningGroups(world.fleet)
    before = said(running)
    statement = world.plan(world.wait(world.request("b0", "b", gpus=1)), running=running)
    assert statement is not None
    assert said(running) != before
    statement.undo(world.fleet)
    running.update(0)
    assert said(running) == before


def test_q09_the_order_on_a_node_follows_members_elsewhere() -> None:
    world = World({"n": 2, "m": 1}, [queue("a")])
    world.gang("default/g", 1)
    world.run(world.request("g0", "a", group="g", gpus=1), "m")
    world.run(world.request("g1", "a", group="g", gpus=1), "n")
    world.run(world.request("single", "a", gpus=1), "n")
    running = RunningGroups(world.fleet)
    assert [pod.request.name for pod in running.on_node[NodeName("n")]] == ["g1", "single"], "g1 is spare"
    world.fleet.remove_pod(PodUID("uid-g0"))
    running.update(0)
    assert [pod.request.name for pod in running.on_node[NodeName("n")]] == ["single", "g1"]
    assert said(running) == said(RunningGroups(world.fleet))


def test_q06_what_was_only_followed_is_read_by_the_next_update() -> None:
    world = World({"n": 2}, [queue("a")])
    world.run(world.request("first", "a", gpus=1))
    running = RunningGroups(world.fleet)
    world.run(world.request("second", "a", gpus=1))
    running.follow()
    assert [pod.request.name for pod in running.pods] == ["first"], "no victim has ended"
    running.update(0)
    assert [pod.request.name for pod in running.pods] == ["second", "first"]


def test_q06_whoever_searches_between_steps_finds_everything_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_groups, "_PODS_PER_STEP", 1)
    world = World({"n": 4, "m": 4}, [queue("a")])
    running = RunningGroups(world.fleet)
    for number in range(8):
        world.run(world.request(f"p{number}", "a", gpus=1))
    next(running.steps())
    running.follow()
    assert said(running) == said(RunningGroups(world.fleet))


def test_q06_a_pod_that_joins_another_group_is_one_pod_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_groups, "_PODS_PER_STEP", 1)
    world = World({"n": 4}, [queue("a")])
    for name in ("alone", "other"):
        world.run(world.request(name, "a", gpus=1))
    running = RunningGroups(world.fleet)
    alone = world.fleet.nodes[NodeName("n")].pods[PodUID("uid-alone")]
    world.fleet.add_pod(msgspec.structs.replace(alone, group="g"), NodeName("n"))
    assert len(list(running.steps())) > 1
    assert said(running) == said(RunningGroups(world.fleet))
    world.fleet.take_away(PodUID("uid-alone"))
    running.update(0)
    assert said(running) == said(RunningGroups(world.fleet))
