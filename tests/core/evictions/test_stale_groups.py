"""Groups that stay below their minimum are evicted whole."""

from __future__ import annotations

import pytest

from apportion.core.evictions import stale_groups
from apportion.core.groups import Subgroup
from tests.core.evictions.worlds import World, evicted, evictions, queue, uid


def halves(minimum: int = 3, below_since: int | None = 100, **about: object) -> World:
    """Two pods of a gang run."""
    world = World({"n": 4}, [queue("a", 4)])
    for number in range(2):
        world.run(world.request(f"g{number}", "a", gpus=1, group="gang", subgroup="worker"))
    world.gang("default/gang", minimum, below_since=below_since, **about)
    return world


@pytest.mark.parametrize(
    ("now", "grace", "gone"), [(159, 60, False), (160, 60, True), (10**9, -1, False), (100, 0, True)]
)
def test_q09_a_group_below_its_minimum_goes_after_the_grace(now: int, grace: int, *, gone: bool) -> None:
    statements = stale_groups.evictions(halves().fleet, now, grace)
    assert [evicted(each) for each in statements] == ([["g0", "g1"]] if gone else [])


def test_q09_the_reason_has_the_numbers() -> None:
    (statement,) = stale_groups.evictions(halves().fleet, 160, 60)
    reasons = {each.reason for each in evictions(statement)}
    assert reasons == {"the group is below its minimum for 60 s: 2 of at least 3 pods run"}


def test_q09_a_subgroup_below_its_minimum_counts() -> None:
    world = halves(2, subgroups=(Subgroup("head", 1), Subgroup("worker", 1)))
    (statement,) = stale_groups.evictions(world.fleet, 160, 60)
    assert evictions(statement)[0].reason.endswith("0 of at least 1 pods of subgroup head run")


def test_q09_a_group_that_has_its_minimum_again_stays() -> None:
    assert stale_groups.evictions(halves(2).fleet, 1000, 60) == []


def test_q09_a_group_of_unknown_time_stays() -> None:
    assert stale_groups.evictions(halves(below_since=None).fleet, 1000, 60) == []


def test_q09_nobody_is_evicted_twice() -> None:
    world = halves()
    world.fleet.set_releasing(uid("g0"), releasing=True)
    (statement,) = stale_groups.evictions(world.fleet, 160, 60)
    assert evicted(statement) == ["g1"]
    statement.apply(world.fleet)
    assert stale_groups.evictions(world.fleet, 160, 60) == []
