"""Whatever comes in whatever order, a view that followed ends with the same groups, queues and charges as one that
reads the cluster afresh."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from apportion.apis.identities import NodeName, PodUID
from apportion.core.groups import Group
from apportion.core.operations import Bind
from apportion.core.statement import Statement
from apportion.view.groups.owners import Following, KindKey
from apportion.view.view import View
from apportion.view.waiting import WaitingPod
from tests.view.groups.group_streams import TEAMS, GroupStream
from tests.view.objects import Cluster, Follower

FULL = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 5_000 if FULL else 150
STEPS = 60
MET = (
    "gang",
    "held",
    "by owner",
    "by PodGroup",
    "by pod",
    "problem",
    "charged",
    "started",
    "below",
    "priority",
    "assumed",
)


class Listener:
    """What the scheduler hears of."""

    def __init__(self, view: View) -> None:
        self.told: dict[PodUID, WaitingPod] = {}
        view.waiting.on_change(self._changed)

    def _changed(self, uid: PodUID, waiting: WaitingPod | None) -> None:
        if waiting is None:
            assert self.told.pop(uid, None) is not None, "nobody heard of it"
        else:
            assert not waiting.held
            self.told[uid] = waiting


def a_view(dice: random.Random) -> View:
    view = View(now=lambda: 0.0)
    view.group_objects.pod_groups_known()
    view.group_objects.priority_classes_known()

    def wanted(kind: KindKey) -> None:
        if dice.random() < 0.5:
            view.groups.owners.set_following(kind, Following.FOLLOWED)

    view.group_objects.follow_owners(wanted)
    return view


def state(view: View) -> dict[str, Any]:
    fleet, accounts = view.fleet, view.fleet.accounts
    return {
        "waiting": {
            each.pod.metadata.uid: (each.reading.request, str(each.reading.problem), each.held) for each in view.waiting
        },
        "pods": {  # the request of a pod that was assumed before it was bound names no node
            uid: (node, msgspec.structs.replace(fleet.nodes[node].pods[uid], node_name=""))
            for uid, node in fleet.pod_nodes.items()
        },
        "gangs": dict(fleet.gangs),
        "queues": dict(accounts.tree.queues),
        "problems": {name: str(problem) for name, problem in view.queues.problems.items()},
        "charges": {name: (accounts.used(name), accounts.fixed(name)) for name in ("", *TEAMS)},
    }


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_q02_q07_q11_any_order_of_arrival_ends_in_the_same_groups() -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    met: Counter[str] = Counter()
    for number in range(STREAMS):
        play(random.Random(seed + number), f"stream {seed + number}", met)
    rare = {what: met[what] for what in MET if met[what] < STREAMS // 3}
    assert not rare, "the streams hardly contain these"


def play(dice: random.Random, name: str, met: Counter[str]) -> None:
    cluster = Cluster()
    follower = Follower(cluster, a_view(dice), dice)
    view = follower.view
    listener = Listener(view)

    def assume(uid: str, node: str) -> None:
        """Our scheduler has decided, and the server has not shown it yet."""
        waiting = listener.told.get(PodUID(uid))
        if waiting is None or waiting.reading.problem is not None or waiting.reading.request is None:
            return
        if waiting.pod.spec.scheduler_name in {"das-scheduler", "kai-scheduler"}:
            request = waiting.reading.request
            statement = Statement(Group.of(request), (Bind(request, NodeName(node)),))
            if PodUID(uid) not in view.fleet.pod_nodes:
                statement.apply(view.fleet)
                view.assumptions.decided(statement)
                met["assumed"] += 1

    stream = GroupStream(cluster, dice, bound=assume)
    known: list[Any] = [-1, None]

    def position_moves(seen: View) -> None:
        now = state(seen)
        now["gangs"] = {key: (gang.minimum, gang.subgroups) for key, gang in now["gangs"].items()}
        assert known[0] != seen.changes.position or known[1] == now, name
        known[:] = [seen.changes.position, now]

    watch = position_moves if dice.random() < 0.1 else lambda _: None
    for step in range(STEPS):
        stream.step()
        if dice.random() < 0.4:
            follower.catch_up(watch)
            met["held"] += bool(view.groups.held())
        if step % 20 == 19:
            follower.catch_up(watch)
            compare(cluster, view, listener, dice, f"{name}, step {step}", met)
            known[:] = [-1, None]


def compare(
    cluster: Cluster, view: View, listener: Listener, dice: random.Random, where: str, met: Counter[str]
) -> None:
    view.group_objects.release_all()
    fresh = Follower(cluster, a_view(dice), dice)
    cluster.followers.remove(fresh)
    fresh.catch_up()
    fresh.view.group_objects.release_all()
    found, expected = state(view), state(fresh.view)
    for part, value in expected.items():
        assert found[part] == value, f"{where}: {part}"
    assert {uid: each.reading.request for uid, each in listener.told.items()} == {
        uid: request for uid, (request, _, _) in found["waiting"].items()
    }, where
    count(found, met)


def count(found: dict[str, Any], met: Counter[str]) -> None:
    for request, problem, held in found["waiting"].values():
        assert not held
        met["problem"] += problem != "None"
        if request is not None and request.group is not None:
            met["by owner" if request.group.startswith("pg-") else "by PodGroup"] += 1
        elif request is not None and request.queue != "default-queue":
            met["by pod"] += 1
        met["priority"] += request is not None and request.priority_class in {"low", "high"}
    met["gang"] += sum(gang.minimum > 1 for gang in found["gangs"].values())
    met["started"] += sum(gang.started is not None for gang in found["gangs"].values())
    met["below"] += sum(gang.below_since is not None for gang in found["gangs"].values())
    met["charged"] += sum(bool(used.cpu) for used, _ in found["charges"].values())
