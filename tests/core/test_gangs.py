"""Which pods of a group have their turn together, and what a queue refuses."""

from __future__ import annotations

from apportion.apis.request import Request
from apportion.core import gangs, group_turns
from apportion.core.explanations import messages
from apportion.core.gangs import State
from apportion.core.groups import Gang, Subgroup
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from tests.core.evictions.worlds import World, queue


def group(world: World, parts: str, minimum: int, *subgroups: Subgroup) -> tuple[Gang, list[Request]]:
    """Pods of subgroups with one letter each, the oldest first."""
    pods = [world.request(f"p{n}", "a", gpus=1, group="g", subgroup=part) for n, part in enumerate(parts)]
    return Gang("default/g", minimum, subgroups), pods


def chosen(world: World, gang: Gang, pods: list[Request]) -> tuple[State, list[str], int]:
    found = gangs.next_members(world.fleet, gang, pods)
    return found.state, [pod.name for pod in found.members], found.missing


def test_q07_until_the_minimum_runs_all_that_is_missing_from_it_has_one_turn() -> None:
    world = World({"n": 4}, [queue("a")])
    gang, pods = group(world, "xxxx", 3)
    assert chosen(world, gang, pods) == (State.BELOW, ["p0", "p1", "p2"], 0)
    world.run(pods[0])
    assert chosen(world, gang, pods[1:]) == (State.BELOW, ["p1", "p2"], 0)
    world.run(pods[1])
    world.run(pods[2])
    assert chosen(world, gang, pods[3:]) == (State.AT, ["p3"], 0)


def test_q07_every_subgroup_has_its_minimum() -> None:
    world = World({"n": 4}, [queue("a")])
    gang, pods = group(world, "wwwh", 3, Subgroup("h", 1), Subgroup("w", 1))
    assert chosen(world, gang, pods) == (State.BELOW, ["p0", "p3", "p1"], 0)


def test_q07_a_group_whose_pods_do_not_exist_yet_waits() -> None:
    world = World({"n": 4}, [queue("a")])
    gang, pods = group(world, "ww", 2, Subgroup("h", 1), Subgroup("w", 1))
    assert chosen(world, gang, pods) == (State.BELOW, [], 1)
    world.fleet.set_gang(gang)
    refusal = group_turns.next_turn(world.fleet, pods)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INCOMPLETE


def test_q09_above_the_minimum_pods_have_their_turn_one_by_one() -> None:
    world = World({"n": 4}, [queue("a")])
    gang, pods = group(world, "xxxx", 1)
    world.run(pods[0])
    world.run(pods[1])
    assert chosen(world, gang, pods[2:]) == (State.ABOVE, ["p2"], 0)


def test_q02_a_group_that_names_two_queues_waits() -> None:
    world = World({"n": 4}, [queue("a"), queue("b")])
    pods = [world.request(name, name, gpus=1, group="g") for name in ("a", "b")]
    refusal = group_turns.next_turn(world.fleet, pods)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INCOMPLETE
    assert "more than one queue: a and b" in messages.of(refusal)


def test_q05_what_is_reserved_for_a_group_counts_once() -> None:
    world = World({"n": 2}, [queue("a", 0, weight=0), queue("b", 2, limit=1)])
    for number in range(2):
        world.run(world.request(f"a{number}", "a", gpus=1))
    pods = [world.request("b0", "b", gpus=1)]
    assert world.plan(world.wait(*pods)) is not None
    turn = group_turns.next_turn(world.fleet, pods)
    assert not isinstance(turn, Refusal)
    assert group_turns.stopped(world.fleet, turn) is None
    more = group_turns.next_turn(world.fleet, [world.request("b1", "b", gpus=1)])
    assert not isinstance(more, Refusal)
    assert group_turns.stopped(world.fleet, more) is not None
