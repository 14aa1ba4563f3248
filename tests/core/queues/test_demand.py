"""What a queue holds and asks for, counted once."""

from __future__ import annotations

from itertools import permutations

import pytest

from apportion.apis.identities import DeviceUUID, NodeName, QueueName
from apportion.core.fleet import GpuFacts
from apportion.core.queues.demand import Demand
from tests.builders.accelerators import A100, model
from tests.builders.fleets import node_facts
from tests.core.evictions.worlds import World, evicted, queue, reserved, uid


def asked(demand: Demand) -> int:
    return demand.of_queues()[QueueName("a")].gpu


def test_q03_a_pod_with_a_reserved_place_is_not_counted_twice() -> None:
    world = World({"n": 1}, [queue("a")])
    world.run(world.request("old", "a", gpus=1, priority=40))
    taker = world.request("new", "a", gpus=1, priority=60)
    demand = Demand(world.fleet)
    demand.add(taker)
    assert asked(demand) == 2000
    statement = world.plan(world.wait(taker))
    assert statement is not None
    assert asked(demand) == 1000  # who leaves does not count any more
    (place,) = reserved(statement)
    world.fleet.release_reservation(place.reservation.key)
    assert asked(demand) == 1000


def test_q03_a_successor_of_a_pod_that_was_moved_is_not_counted_twice() -> None:
    world = World({"n0": 3, "n1": 2}, [queue("a", 9)])
    world.run(world.request("big", "a", gpus=2, owner="job-big"), "n0")
    world.run(world.request("small", "a", gpus=1, owner="job-small"), "n1")
    assert evicted(world.plan(world.wait(world.request("x", "a", gpus=2)))) == ["small"]
    world.fleet.remove_pod(uid("small"))
    demand = Demand(world.fleet)
    before = asked(demand)
    for number in (2, 3):
        demand.add(world.request(f"small-{number}", "a", gpus=1, owner="job-small"))
    assert asked(demand) == before + 1000  # one of them has a place
    demand.remove(uid("small-2"))
    assert asked(demand) == before


@pytest.mark.parametrize("order", list(permutations(("node", "gpu", "pod"))), ids="-".join)
def test_q03_q08_a_slice_counts_the_same_in_whatever_order_the_cluster_shows_node_gpu_and_pod(
    order: tuple[str, ...],
) -> None:
    world = World({}, [queue("a")])
    demand = Demand(world.fleet)
    shown = {
        "node": lambda: world.fleet.set_node(node_facts("n")),
        "gpu": lambda: world.fleet.set_gpus(
            NodeName("n"), [GpuFacts(DeviceUUID("g"), model(A100), mig=True)], ready=True
        ),
        "pod": lambda: demand.add(world.request("p", "a", slices={"3g.20gb": 1})),
    }
    for each in order:
        shown[each]()
        asked(demand)
    assert asked(demand) == 500
