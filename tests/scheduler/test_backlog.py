"""Who waits, who is woken, and by what."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any

import msgspec
import pytest

from apportion.apis import kinds, names
from apportion.apis.request import Request
from apportion.core import group_decision, group_turns
from apportion.core.cluster_changes import Change, Happened
from apportion.core.fleet_facts import Reservation
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import NodeGroup, Refusal
from apportion.scheduler import backlog as backlogs
from apportion.scheduler import metrics
from apportion.scheduler.backlog import Backlog, Stage, Waiting
from apportion.scheduler.cycles import Cycles
from apportion.view.view import View
from tests.builders.accelerators import T4
from tests.builders.fleets import add_node, fleet_of, node_facts
from tests.builders.pods import pod_request
from tests.scheduler.cluster import ApiCluster, scheduling, until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def request(name: str, **fields: object) -> Request:
    return Request(uid=f"uid-{name}", namespace="default", name=name, **fields)  # type: ignore[arg-type]


def refusal(name: str, *groups: tuple[Code, tuple[str, ...]]) -> Refusal:
    parts = tuple(NodeGroup(code, "", nodes) for code, nodes in groups)
    total = sum(len(nodes) for _, nodes in groups)
    return Refusal(f"uid-{name}", f"default/{name}", (("1g.5gb", 1),), groups[0][0], total, parts)


FULL = refusal("a", (Code.NO_PLACE, ("n1", "n2")), (Code.TAINT, ("n3",)))


@pytest.mark.parametrize(
    ("change", "helps"),
    [
        (Change(Happened.SLICE_FREED, "n1"), True),
        (Change(Happened.SLICE_FREED, "n3"), False),
        (Change(Happened.POD_GONE, "n1"), False),
        (Change(Happened.POD_CAME, "n1"), False),
        (Change(Happened.NODE_CHANGED, "n3"), True),
        (Change(Happened.NODE_CHANGED, "new"), True),
        (Change(Happened.SLICE_FREED, "n9", "uid-a"), True),
        (Change(Happened.SLICE_CAME, "n9", "uid-a"), True),
        (Change(Happened.SLICE_CAME, "n1", "uid-b"), False),
    ],
)
def test_only_changes_that_can_help_wake_a_pod(change: Change, helps: bool) -> None:  # noqa: FBT001
    assert wakes(change, FULL) is helps


@pytest.mark.parametrize(
    ("code", "kind", "node", "helps"),
    [
        (Code.RESOURCE, Happened.POD_GONE, "n1", True),
        (Code.RESOURCE, Happened.POD_GONE, "n2", False),
        (Code.RESOURCE, Happened.SLICE_FREED, "n1", False),
        (Code.SPREAD, Happened.POD_CAME, "n2", True),
        (Code.APART, Happened.POD_GONE, "n2", True),
        (Code.NEAR, Happened.POD_CAME, "n2", True),
        (Code.NEAR, Happened.POD_GONE, "n2", False),
        (Code.NEAR, Happened.NAMESPACE_CHANGED, "", True),
        (Code.APART, Happened.NAMESPACE_CHANGED, "", True),
        (Code.KEPT_APART, Happened.NAMESPACE_CHANGED, "", True),
        (Code.RESOURCE, Happened.NAMESPACE_CHANGED, "", False),
    ],
)
def test_each_reason_is_helped_by_its_own_changes(code: Code, kind: Happened, node: str, helps: bool) -> None:  # noqa: FBT001
    assert wakes(Change(kind, node), refusal("a", (code, ("n1",)))) is helps


def wakes(change: Change, refused: Refusal) -> bool:
    backlog = Backlog(Clock())
    backlog.offer(request("a"))
    (entry,) = backlog.take([])
    backlog.park(entry, refused)
    return backlog.take([change]) == [entry]


def test_the_order_is_priority_then_age_then_name() -> None:
    backlog = Backlog(Clock())
    pods = [
        request("young", created="2026-01-02T00:00:00Z"),
        request("old", created="2026-01-01T00:00:00Z"),
        request("important", priority=75, created="2026-01-03T00:00:00Z"),
        request("also-old", created="2026-01-01T00:00:00Z"),
    ]
    for order in itertools.permutations(pods):
        for pod in order:
            backlog.withdraw(pod.uid)
            backlog.offer(pod)
        assert [entry.group.members[0].name for entry in backlog.take([])] == ["important", "also-old", "old", "young"]


def test_a_parked_pod_waits_for_a_change_or_for_a_long_time() -> None:
    clock = Clock()
    backlog = Backlog(clock)
    backlog.offer(request("a"))
    (entry,) = backlog.take([])
    backlog.park(entry, FULL)
    assert not backlog.offer(request("a")), "the same wish is no news"
    assert backlog.take([Change(Happened.POD_CAME, "n1")]) == []
    assert backlog.take([Change(Happened.SLICE_FREED, "n1")]) == [entry]
    backlog.park(entry, FULL)
    clock.now += backlogs.LOOK_AGAIN_SECONDS
    assert backlog.next_time() is not None
    assert backlog.take([]) == [entry]
    backlog.park(entry, None)
    assert backlog.take([Change(Happened.NODE_CHANGED, "n1")]) == []
    assert backlog.offer(request("a", labels={"new": "label"}))
    assert backlog.take([]) == [entry]


def test_x01_a_change_that_helps_nobody_has_reasons_looked_at_again_before_long() -> None:
    clock = Clock()
    backlog = Backlog(clock)
    backlog.offer(request("a"))
    (entry,) = backlog.take([])
    backlog.park(entry, FULL)
    assert backlog.take([Change(Happened.POD_CAME, "n1")]) == []
    clock.now += 1
    assert backlog.take([Change(Happened.POD_CAME, "n1")]) == []
    assert backlog.next_time() == clock.now - 1 + backlogs.REFRESH_SECONDS, "changes in a row do not put it off"
    clock.now += backlogs.REFRESH_SECONDS
    assert backlog.take([]) == [entry]
    backlog.park(entry, FULL)
    clock.now += backlogs.REFRESH_SECONDS
    assert backlog.take([]) == [], "nothing has changed since"


def test_a_pod_whose_plan_failed_comes_back_later_and_later() -> None:
    clock = Clock()
    backlog = Backlog(clock, part=lambda: 1.0)
    backlog.offer(request("a"))
    (entry,) = backlog.take([])
    waits = []
    for _ in range(10):
        backlog.start(entry)
        assert backlog.count(Stage.UNDER_WAY) == 1
        backlog.retry(entry.key)
        assert backlog.take([]) == []
        due = backlog.next_time()
        assert due is not None
        waits.append(due - clock.now)
        clock.now = due
        assert backlog.take([]) == [entry]
    assert waits == sorted(waits)
    assert waits[-1] == backlogs.LONGEST_RETRY_SECONDS


def test_two_leaders_do_not_try_again_at_the_same_times() -> None:
    moments = []
    for _ in range(2):
        clock = Clock()
        backlog = Backlog(clock)
        backlog.offer(request("a"))
        (entry,) = backlog.take([])
        backlog.start(entry)
        backlog.retry(entry.key)
        due = backlog.next_time()
        assert due is not None
        assert backlogs.FIRST_RETRY_SECONDS / 2 <= due - clock.now <= backlogs.FIRST_RETRY_SECONDS
        moments.append(due - clock.now)
    assert moments[0] != moments[1]


def test_a_reservation_sets_only_its_owner_apart() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    backlog = Backlog(Clock())
    for name in ("a", "b", "owner"):
        backlog.offer(request(name))
    first, second, owner = backlog.take([])

    def same(*entries: Waiting) -> bool:
        return len({entry.class_on(fleet, entry.group) for entry in entries}) == 1

    assert same(first, second, owner)
    fleet.reserve(Reservation("room", "n", {names.NVIDIA_GPU: 1}, owner="uid-owner"))
    assert same(first, second)
    assert not same(first, owner)
    fleet.release_reservation("room")
    assert same(first, owner)


def test_pods_that_are_alike_are_decided_once_also_if_something_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []
    decide = group_decision.decide

    def counted(*arguments: Any, **options: Any) -> Any:
        decided.append(arguments[1].key)
        return decide(*arguments, **options)

    monkeypatch.setattr(group_decision, "decide", counted)
    view, backlog = View(), Backlog(Clock())
    add_node(view.fleet, node_facts("n"), [(T4, False)])
    view.fleet.reserve(Reservation("room", "n", {names.NVIDIA_GPU: 1}, owner="uid-owner"))
    for name in ("a", "b", "owner"):
        backlog.offer(msgspec.structs.replace(pod_request(name, gpus=1), uid=f"uid-{name}"))
    nothing: Any = None
    rounds = Cycles(view, backlog, nothing, nothing, Policy(), nothing, changed=nothing, now=Clock())
    refused: set[Hashable] = set()
    outcomes = [
        rounds._decide(entry, group_turns.next_turn(view.fleet, entry.group.members), refused)
        for entry in backlog.take([])
    ]
    assert decided == ["uid-a", "uid-owner"]
    assert [outcome is not None for outcome in outcomes] == [False, False, True]


def test_one_of_those_that_are_alike_is_taken_for_all_of_them() -> None:
    backlog = Backlog(Clock())
    for name in ("c", "a", "b"):
        backlog.offer(request(name))
    first, second, third = backlog.take([])
    for entry in (third, first, second):
        backlog.park(entry, FULL, "alike")
    freed = Change(Happened.SLICE_FREED, "n1")
    assert backlog.take([freed]) == [first]
    backlog.park(first, FULL, "alike")
    backlog.withdraw("uid-a")
    assert backlog.take([freed]) == [second]
    assert backlog.wake_alike(second) == [third]
    assert backlog.wake_alike(second) == []
    assert backlog.refusal_of("alike") is None


def test_a_change_of_a_pods_own_wakes_it_alone() -> None:
    backlog = Backlog(Clock())
    for name in ("a", "b", "c"):
        backlog.offer(request(name))
    entries = backlog.take([])
    for entry in entries:
        backlog.park(entry, FULL, "alike")
    (woken,) = backlog.take([Change(Happened.STORAGE_CHANGED, pod="uid-b")])
    assert woken is entries[1]
    assert backlog.wake_alike(woken) == [], "the others were not helped"
    assert backlog.first_of("alike") is entries[0]


def test_what_is_found_out_about_one_holds_for_those_that_are_alike() -> None:
    backlog = Backlog(Clock())
    for name in ("a", "b"):
        backlog.offer(request(name))
    first, second = backlog.take([])
    tainted = refusal("a", (Code.TAINT, ("n1",)))
    backlog.park(first, FULL, "alike")
    backlog.park(second, tainted, "alike")
    assert backlog.take([Change(Happened.SLICE_FREED, "n1")]) == []
    assert backlog.explain("alike", FULL) == [first, second]
    assert backlog.take([Change(Happened.SLICE_FREED, "n1")]) == [first]


def test_a_group_whose_pods_change_is_no_longer_like_the_others() -> None:
    backlog = Backlog(Clock())
    for name in ("a", "b"):
        backlog.offer(request(name))
    for entry in backlog.take([]):
        backlog.park(entry, FULL, "alike")
    backlog.offer(request("a", labels={"new": "label"}))
    (changed,) = backlog.take([])
    backlog.park(changed, FULL, "another")
    assert len(backlog.take([Change(Happened.SLICE_FREED, "n1")])) == 2


def test_timers_do_not_pile_up() -> None:
    backlog = Backlog(Clock())
    backlog.offer(request("a"))
    for _ in range(1000):
        for entry in backlog.take([Change(Happened.SLICE_FREED, "n1")]):
            backlog.park(entry, FULL)
    assert len(backlog._timers) == 1
    backlog.withdraw("uid-a")
    assert backlog.next_time() is None


async def test_heartbeats_and_other_pods_states_wake_nobody(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        await cluster.pod("holder", slices={"7g.40gb": 1})
        await cluster.bound("holder")
        for number in range(5):
            await cluster.pod(f"waits-{number}", slices={"1g.5gb": 1})
            await cluster.waits(f"waits-{number}")
        before = decisions()
        for number in range(5):
            condition = {"type": "Ready", "status": "True", "reason": "R", "message": f"beat {number}"}
            await cluster.client.patch(kinds.NODES, "n1", {"status": {"conditions": [condition]}}, subresource="status")
            await cluster.set_phase("holder", "Running" if number % 2 else "Pending")
        await cluster.pod("plain", limits={"cpu": "1"})
        await cluster.bound("plain")
        assert decisions() == before + 1

        await cluster.delete("holder")
        await cluster.bound(*[f"waits-{number}" for number in range(5)])

        async def counted() -> bool:
            return decisions() > before + 1

        await until(counted)


def decisions() -> float:
    return sum(float(metrics.DECISIONS.labels(result)._value.get()) for result in ("placed", "refused"))
