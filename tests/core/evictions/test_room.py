"""Room for a group: what is planned, in which order it is written, and what protects a victim."""

from __future__ import annotations

import pytest

from apportion.apis.identities import NodeName
from apportion.core import group_decision, group_turns
from apportion.core.evictions import nominations
from apportion.core.evictions.disruption_budgets import KnownBudgets
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.explanations import messages
from apportion.core.groups import Subgroup
from apportion.core.operations import Evict, ObjectKind, ObjectRef, Reserve
from apportion.core.queues.turns import Turn
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from tests.core.evictions.worlds import World, evicted, evictions, kept_places, queue, reserved, uid

TWO = (queue("a", 1), queue("b", 1))


def full(*queues: object, gpus: int = 2, **about: object) -> World:
    """A node whose GPUs are used by pods a0, a1, ... of queue a."""
    world = World({"n": gpus}, queues or TWO)  # type: ignore[arg-type]
    for number in range(gpus):
        world.run(world.request(f"a{number}", "a", gpus=1, **about))
    return world


def test_q06_places_are_reserved_and_written_before_anybody_is_evicted() -> None:
    world = full()
    statement = world.plan(world.wait(world.request("b0", "b", gpus=1)))
    assert statement is not None
    first, second = statement.waves()
    assert [type(each) for each in first] == [Reserve]
    assert [type(each) for each in second] == [Evict]
    assert first[0].confirmed_by is not None
    assert first[0].confirmed_by.kind is ObjectKind.NOMINATION
    assert second[0].after == (first[0].confirmed_by,)
    assert evicted(statement) == ["a1"], "the newest"


def test_q06_a_taker_whose_reservation_stands_is_not_planned_for_twice() -> None:
    world = full(gpus=4)
    group = world.wait(world.request("b0", "b", gpus=1))
    running = RunningGroups(world.fleet)
    assert world.plan(group, running=running) is not None
    assert world.plan(group, running=running) is None
    assert world.plan(group) is None
    assert len(world.fleet.releasing) == 1


def test_q06_the_next_taker_takes_somebody_else() -> None:
    world = full(queue("a", 1), queue("b", 3), gpus=4)
    groups = [world.wait(world.request(f"b{number}", "b", gpus=1)) for number in range(4)]
    running = RunningGroups(world.fleet)
    assert [evicted(world.plan(group, running=running)) for group in groups] == [["a3"], ["a2"], ["a1"], []]


def test_q06_the_event_says_queue_numbers_and_for_whom() -> None:
    world = full()
    (eviction,) = evictions(world.plan(world.wait(world.request("b0", "b", gpus=1))))
    assert eviction.reason == ("reclaimed for default/b0 of queue b: queue a uses 2 GPUs and has a fair share of 1 GPU")


def test_q06_the_event_names_no_pod_of_another_namespace() -> None:
    world = full()
    (eviction,) = evictions(world.plan(world.wait(world.request("b0", "b", gpus=1, namespace="other"))))
    assert "b0" not in eviction.reason
    assert eviction.reason.startswith("reclaimed for 1 pod of another namespace of queue b")


def test_q06_the_event_of_a_preempted_pod_names_both_priorities() -> None:
    world = full(queue("a", 2), priority=40)
    (eviction,) = evictions(world.plan(world.wait(world.request("x", "a", gpus=1, priority=75))))
    assert eviction.reason == ("preempted for default/x of the same queue a: its priority is 75, that of this pod 40")


def test_q06_who_is_moved_has_a_place_that_is_held_for_its_successor() -> None:
    world = World({"n0": 3, "n1": 2}, [queue("a", 9)])
    world.run(world.request("big", "a", gpus=2, owner="job-big"), "n0")
    world.run(world.request("small", "a", gpus=1, owner="job-small"), "n1")
    statement = world.plan(world.wait(world.request("x", "a", gpus=2)))
    assert statement is not None
    (eviction,) = evictions(statement)
    assert eviction.request.name == "small"
    assert eviction.reason == ("moved to make room for default/x: a place on node n0 is reserved for its successor")
    (place,), (kept,) = reserved(statement), kept_places(statement)
    assert (place.reservation.node, kept.node) == ("n1", "n0")
    assert set(eviction.after) == {place.confirmed_by, ObjectRef(ObjectKind.PLACES, uid("x"))}
    world.fleet.remove_pod(uid("small"))
    intruder = world.wait(world.request("intruder", "a", gpus=1))
    assert isinstance(group_decision.decide(world.fleet, intruder, world.policy), Refusal)
    successor = world.wait(world.request("small-2", "a", gpus=1, owner="job-small"))
    outcome = group_decision.decide(world.fleet, successor, world.policy)
    assert isinstance(outcome, Statement)
    assert outcome.node == "n0"


@pytest.mark.parametrize(("consolidation", "gone"), [("off", []), ("gpus", ["small"]), ("slices", ["small"])])
def test_q06_consolidation_can_be_turned_off(consolidation: str, gone: list[str]) -> None:
    world = World({"n0": 3, "n1": 2}, [queue("a", 9)])
    world.run(world.request("big", "a", gpus=2, owner="job-big"), "n0")
    world.run(world.request("small", "a", gpus=1, owner="job-small"), "n1")
    taker = world.wait(world.request("x", "a", gpus=2))
    assert evicted(world.plan(taker, consolidation=Consolidation(consolidation))) == gone


@pytest.mark.parametrize(("consolidation", "gone"), [("off", []), ("gpus", []), ("slices", ["small"])])
def test_q06_slices_are_moved_only_where_that_is_asked_for(consolidation: str, gone: list[str]) -> None:
    world = World({"n0": 1, "n1": 1}, [queue("a", 9)], mig=True)
    world.run(world.request("half", "a", slices={"3g.20gb": 1}, owner="job-half"), "n0")
    world.run(world.request("small", "a", slices={"1g.5gb": 1}, owner="job-small"), "n1")
    taker = world.wait(world.request("x", "a", slices={"7g.40gb": 1}))
    assert evicted(world.plan(taker, consolidation=Consolidation(consolidation))) == gone


def test_q06_nobody_is_moved_for_a_pod_without_gpus() -> None:
    world = World({"n0": 1, "n1": 1}, [queue("a", 9)])
    for node, cpu in (("n0", "40"), ("n1", "10")):
        world.run(world.request(f"on-{node}", "a", cpu=cpu, owner=f"job-{node}"), node)
    taker = world.wait(world.request("x", "a", cpu="60"))
    assert world.plan(taker) is None


def test_q06_a_successor_passes_a_limit_that_its_own_place_uses_up() -> None:
    world = World({"n0": 3, "n1": 2}, [queue("a", 9, limit=5)])
    world.run(world.request("big", "a", gpus=2, owner="job-big"), "n0")
    world.run(world.request("small", "a", gpus=1, owner="job-small"), "n1")
    assert world.plan(world.wait(world.request("x", "a", gpus=2))) is not None
    world.fleet.remove_pod(uid("small"))
    turn = group_turns.next_turn(world.fleet, [world.request("small-2", "a", gpus=1, owner="job-small")])
    assert not isinstance(turn, Refusal)
    assert group_turns.stopped(world.fleet, turn) is None
    other = group_turns.next_turn(world.fleet, [world.request("other", "a", gpus=1, owner="job-other")])
    assert not isinstance(other, Refusal)
    assert group_turns.stopped(world.fleet, other) is not None


def test_q06_nothing_is_moved_where_the_queue_would_exceed_its_limit() -> None:
    """Whoever is moved still counts for the limit."""
    world = World(
        {"n0": 4, "n1": 4}, [queue("top", 9, limit=6), queue("a", 0, parent="top"), queue("b", 4, parent="top")]
    )
    for number in range(4):
        world.run(world.request(f"a{number}", "a", gpus=1, owner=f"job-{number}"), "n0" if number < 2 else "n1")
    statement = world.plan(world.wait(world.request("x", "b", gpus=4)))
    assert statement is not None
    assert world.fleet.accounts.used("top").gpu <= 6000  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budgets", "gone"),
    [
        (KnownBudgets({"default/x": 0}, {uid("a1"): ("default/x",)}), ["a0"]),
        (KnownBudgets({"default/x": 1}, {uid("a1"): ("default/x",)}), ["a1"]),
        (KnownBudgets({"default/x": 5, "default/y": 5}, {uid("a1"): ("default/x", "default/y")}), ["a0"]),
        (KnownBudgets({"default/x": 0}, {uid("a0"): ("default/x",), uid("a1"): ("default/x",)}), []),
    ],
    ids=["used up", "allows one", "two budgets", "protects all"],
)
def test_q07_a_victim_that_a_budget_protects_is_not_planned_for(budgets: KnownBudgets, gone: list[str]) -> None:
    world = full()
    world.fleet.budgets = budgets
    assert evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)))) == gone


def test_q07_plans_of_one_cycle_share_what_a_budget_allows() -> None:
    world = full(queue("a", 0, weight=0), queue("b", 4), gpus=4)
    world.fleet.budgets = KnownBudgets({"default/x": 1}, {uid(f"a{number}"): ("default/x",) for number in range(4)})
    groups = [world.wait(world.request(f"b{number}", "b", gpus=1)) for number in range(3)]
    running = RunningGroups(world.fleet)
    assert [len(evicted(world.plan(group, running=running))) for group in groups] == [1, 0, 0]
    assert world.plan(groups[1]) is None, "in the next cycle the eviction that is under way counts"


def test_q07_moved_pods_count_for_their_budgets() -> None:
    world = World({"n0": 3, "n1": 2}, [queue("a", 9)])
    world.run(world.request("big", "a", gpus=2, owner="job-big"), "n0")
    world.run(world.request("small", "a", gpus=1, owner="job-small"), "n1")
    world.fleet.budgets = KnownBudgets({"default/x": 0}, {uid("small"): ("default/x",)})
    assert world.plan(world.wait(world.request("x", "a", gpus=2))) is None


def test_q07_a_gang_goes_as_a_whole_or_not_at_all() -> None:
    world = World({"n0": 1, "n1": 1}, TWO)
    for number in range(2):
        world.run(world.request(f"g{number}", "a", gpus=1, group="gang"), f"n{number}")
    world.gang("default/gang", 2)
    assert evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)))) == ["g0", "g1"]


def test_q07_a_gang_with_a_pod_that_a_budget_protects_stays() -> None:
    world = World({"n0": 1, "n1": 1}, TWO)
    for number in range(2):
        world.run(world.request(f"g{number}", "a", gpus=1, group="gang"), f"n{number}")
    world.gang("default/gang", 2)
    world.fleet.budgets = KnownBudgets({"default/x": 0}, {uid("g0"): ("default/x",)})
    assert world.plan(world.wait(world.request("b0", "b", gpus=1))) is None


def test_q09_subgroups_keep_their_minimums() -> None:
    world = World({"n": 4}, [queue("a", 0, weight=0), queue("b", 4)])
    for name, part in (("head", "head"), ("w0", "worker"), ("w1", "worker"), ("w2", "worker")):
        world.run(world.request(name, "a", gpus=1, group="gang", subgroup=part))
    world.gang("default/gang", 2, subgroups=(Subgroup("head", 1), Subgroup("worker", 1)))
    running = RunningGroups(world.fleet)
    groups = [world.wait(world.request(f"b{number}", "b", gpus=1)) for number in range(3)]
    plans = [evicted(world.plan(group, running=running)) for group in groups]
    assert plans == [["w2"], ["w1"], ["head", "w0"]]


def test_q10_a_group_that_started_lately_is_not_reclaimed() -> None:
    def plan(now: int, started: int | None, **times: int) -> list[str]:
        world = full(queue("a", 1, **times), queue("b", 1))
        for number in range(2):
            world.gang(uid(f"a{number}"), 1, started=started)
        return evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)), now=now))

    assert plan(109, 100, reclaim_min_runtime=10) == []
    assert plan(110, 100, reclaim_min_runtime=10) != []
    assert plan(109, None, reclaim_min_runtime=10) != []
    assert plan(109, 100, preempt_min_runtime=10) != [], "that is about preemption"


def test_q10_a_group_that_started_lately_is_not_preempted() -> None:
    def plan(now: int, **times: int) -> list[str]:
        world = full(queue("top", 2, **times), queue("a", 2, parent="top"), priority=40)
        for number in range(2):
            world.gang(uid(f"a{number}"), 1, started=100)
        return evicted(world.plan(world.wait(world.request("x", "a", gpus=1, priority=75)), now=now))

    assert plan(109, preempt_min_runtime=10) == [], "the nearest queue upwards that sets it"
    assert plan(110, preempt_min_runtime=10) != []
    assert plan(109, reclaim_min_runtime=10) != []


def test_q10_between_departments_the_time_of_the_department_counts() -> None:
    def plan(now: int, department: int | None, leaf: int | None) -> list[str]:
        queues = [
            queue("d1", 1, reclaim_min_runtime=department),
            queue("d2", 1),
            queue("a", 1, parent="d1", reclaim_min_runtime=leaf),
            queue("b", 1, parent="d2"),
        ]
        world = full(*queues)
        for number in range(2):
            world.gang(uid(f"a{number}"), 1, started=100)
        return evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)), now=now))

    assert plan(105, 10, None) == []
    assert plan(105, None, 10) != [], "the leaf is below the child of the common ancestor"
    assert plan(105, 0, 10) != []


def test_q10_spare_pods_stay_available() -> None:
    world = World({"n": 3}, [queue("a", 1, reclaim_min_runtime=60), queue("b", 2)])
    for number in range(3):
        world.run(world.request(f"e{number}", "a", gpus=1, group="elastic"))
    world.gang("default/elastic", 2, started=100)
    running = RunningGroups(world.fleet, 110)
    groups = [world.wait(world.request(f"b{number}", "b", gpus=1)) for number in range(2)]
    assert [evicted(world.plan(group, running=running)) for group in groups] == [["e2"], []]


def test_x04_a_place_that_somebody_leaves_is_used_before_others_are_evicted() -> None:
    world = full()
    world.fleet.set_releasing(uid("a0"), releasing=True)
    statement = world.plan(world.wait(world.request("b0", "b", gpus=1)))
    assert statement is not None
    assert evicted(statement) == []
    (place,) = reserved(statement)
    assert place.reservation.after == (uid("a0"),)


def test_q08_room_for_a_share_is_made_on_one_gpu() -> None:
    world = World({"n": 2}, [queue("a", 0, weight=0), queue("b", 2)])
    for number, fraction in enumerate(("0.5", "0.6", "0.4", "0.3")):
        world.run(world.request(f"a{number}", "a", fraction=fraction))
    statement = world.plan(world.wait(world.request("b0", "b", fraction="0.7")))
    assert statement is not None
    assert len(evicted(statement)) == 1
    (place,) = reserved(statement)
    assert len(place.reservation.shares) == 1
    assert place.reservation.node == NodeName("n")


def test_q06_a_preemption_takes_no_queue_further_above_its_share_while_another_waits_below_its_own() -> None:
    def plan(*, contended: bool) -> list[str]:
        world = World({"n": 2}, [queue("a", 1, weight=0), queue("b", 1, weight=0)])
        world.run(world.request("small", "a", fraction="0.5"))
        if contended:
            world.wait(world.request("other", "b", gpus=2))
        return evicted(world.plan(world.wait(world.request("x", "a", gpus=2, priority=75))))

    assert plan(contended=False) == ["small"]
    assert plan(contended=True) == [], "b would reclaim what a takes beyond its share"


def test_q06_victims_that_end_between_two_plans_are_not_planned_for() -> None:
    world = full(queue("a", 1), queue("b", 3), gpus=4)
    running = RunningGroups(world.fleet)
    assert evicted(world.plan(world.wait(world.request("b0", "b", gpus=1)), running=running)) == ["a3"]
    world.fleet.remove_pod(uid("a2"))
    world.fleet.add_pod(world.request("foreign", "a", gpus=1, priority=100), NodeName("n"))
    assert evicted(world.plan(world.wait(world.request("b1", "b", gpus=1)), running=running)) == ["a1"]


@pytest.mark.parametrize(("members", "gpus"), [(1, 2), (1, 4), (2, 1), (2, 2), (4, 1)])
def test_q06_of_many_victims_those_are_found_that_their_queues_have_to_give(members: int, gpus: int) -> None:
    """On every node the newest pods are of one queue, which must not lose so many."""
    wanted = members * gpus
    each = 16 - wanted // 2
    world = World({f"n{number}": 4 for number in range(8)}, [queue("a", each), queue("b", wanted), queue("c", each)])
    for name in ("c", "a"):
        for number in range(16):
            world.run(world.request(f"{name}{number}", name, gpus=1), f"n{number // 2}")
    world.gang("g", members)
    takers = [world.request(f"b{number}", "b", group="g", gpus=gpus) for number in range(members)]
    gone = evicted(world.plan(world.wait(*takers)))
    assert sorted(name[0] for name in gone) == ["a"] * (wanted // 2) + ["c"] * (wanted // 2)


@pytest.mark.parametrize(("limit", "kept"), [(1, False), (2, True)])
def test_q05_q06_a_place_is_not_kept_by_the_next_leader_while_the_limit_is_used_by_others(
    *, limit: int, kept: bool
) -> None:
    world = World({"n1": 1, "n2": 1}, [queue("a", limit=limit)])
    world.run(world.request("victim", "a", gpus=1), "n2")
    taker = world.request("taker", "a", gpus=1)
    again = nominations.reserve_again(world.fleet, taker, NodeName("n1"), world.policy)
    assert (again is not None) == kept


def test_q05_a_reserved_place_is_not_used_above_the_limit_if_others_are_not_evicted_after_all() -> None:
    """Their plan, made for a third pod, had left room within the limit."""
    world = World({"n1": 1, "n2": 1, "n3": 1}, [queue("a", limit=2)])
    victim = world.request("victim", "a", gpus=1)
    world.run(victim, "n1")
    world.run(world.request("other", "a", gpus=1), "n2")
    taker = world.request("taker", "a", gpus=1)
    world.fleet.set_releasing(victim.uid, releasing=True)
    kept = nominations.reserve_again(world.fleet, taker, NodeName("n3"), world.policy)
    assert kept is not None
    world.fleet.reserve(kept)
    turn = group_turns.next_turn(world.fleet, [taker])
    assert isinstance(turn, Turn)
    assert group_turns.stopped(world.fleet, turn) is None
    world.fleet.set_releasing(victim.uid, releasing=False)
    stopped = group_turns.stopped(world.fleet, turn)
    assert stopped is not None
    assert stopped.code is Code.OVER_LIMIT
    assert "2 of 2 GPUs in use, 1 more requested" in messages.of(stopped)
