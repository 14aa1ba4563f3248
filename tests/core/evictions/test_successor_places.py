"""Places for successors that an earlier leader wrote down: which of them are kept, and which nobody needs any more."""

from __future__ import annotations

import msgspec

from apportion.apis.identities import NodeName
from apportion.core import group_decision
from apportion.core.evictions.successor_places import KeptPlace, keep_again
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from tests.core.evictions.worlds import World, kept_places, queue, uid

EARLIER = "2026-01-01T00:00:00Z"
SINCE, BEFORE, LATER = "2026-01-02T00:00:00Z", "2026-01-01T23:59:59Z", "2026-01-02T00:00:01Z"


def moved(*, ended: bool = True) -> tuple[World, KeptPlace]:
    """`small` was moved from n1 to n0, to make room for `large`. The next leader knows what was written, no more."""
    world = World({"n0": 3, "n1": 2}, [queue("a", 9)])
    world.run(world.request("big", "a", gpus=2, owner="job-big"), "n0")
    world.run(world.request("small", "a", gpus=1, owner="job-small"), "n1")
    large = world.wait(world.request("large", "a", gpus=2))
    statement = world.plan(large)
    assert statement is not None
    (place,) = kept_places(statement)
    statement.undo(world.fleet)
    if ended:
        world.fleet.remove_pod(uid("small"))
    return world, KeptPlace(uid("small"), EARLIER, SINCE, place)


def successor(world: World, created: str = LATER, **more: object) -> Group:
    request = world.request("next", "a", gpus=1, owner="job-small", **more)
    return Group.of(msgspec.structs.replace(request, created=created))


def kept(world: World, *places: KeptPlace) -> list[Reservation]:
    found = keep_again(world.fleet, places)
    assert list(world.fleet.reservations.values()) == found
    return found


def test_q06_the_next_leader_keeps_the_place_for_the_successor() -> None:
    for ended in (True, False):
        world, place = moved(ended=ended)
        if not ended:
            world.fleet.set_releasing(uid("small"), releasing=True)
        (found,) = kept(world, place)
        assert (found.node, found.charge) == ("n0", place.reservation.charge)
        world.run(world.request("filler", "a", gpus=2 if ended else 1), "n1")
        rival = Group.of(world.request("rival", "a", gpus=1))
        assert isinstance(group_decision.decide(world.fleet, rival, world.policy), Refusal)
        outcome = group_decision.decide(world.fleet, successor(world), world.policy)
        assert isinstance(outcome, Statement)
        assert outcome.node == "n0"


def test_q06_no_place_is_kept_for_a_pod_that_was_not_evicted() -> None:
    world, place = moved(ended=False)
    assert kept(world, place) == []


def test_q06_no_place_is_kept_if_the_successor_has_one() -> None:
    for created, places in ((LATER, 0), (SINCE, 0), (BEFORE, 1)):
        world, place = moved()
        group_decision.decide(world.fleet, successor(world, created), world.policy)
        world.fleet.remove_pod(uid("big"))
        assert len(kept(world, place)) == places, created


def test_q06_pods_of_another_namespace_are_no_successors_and_get_no_place() -> None:
    world, place = moved()
    stranger = successor(world, namespace="evil")
    group_decision.decide(world.fleet, stranger, world.policy)
    world.fleet.remove_pod(uid("big"))
    assert len(kept(world, place)) == 1


def test_q06_of_two_places_the_one_whose_successor_came_is_not_kept() -> None:
    world, place = moved()
    world.fleet.remove_pod(uid("big"))
    elsewhere = place.reservation._replace(node=NodeName("n1"), key="second")
    other = KeptPlace(uid("second"), EARLIER, SINCE, elsewhere)
    world.run(successor(world).members[0], "n1")
    assert kept(world, other, place) == [place.reservation]


def test_q06_of_a_pod_that_was_moved_twice_only_the_last_place_is_kept() -> None:
    world, place = moved()
    world.fleet.remove_pod(uid("big"))
    again = KeptPlace(uid("next"), LATER, LATER, place.reservation._replace(node=NodeName("n1"), key="second"))
    assert kept(world, place, again) == [again.reservation]
    for reservation in list(world.fleet.reservations):
        world.fleet.release_reservation(reservation)
    world.run(successor(world, created="2026-01-02T00:00:02Z").members[0], "n1")
    assert kept(world, place, again) == []


def test_q06_a_place_that_is_gone_or_taken_is_not_kept() -> None:
    world, place = moved()
    world.run(world.request("rival", "a", gpus=1), "n0")
    assert kept(world, place) == []
    world, place = moved()
    world.fleet.remove_node(NodeName("n0"))
    assert kept(world, place) == []
