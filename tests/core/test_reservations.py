"""Reservations: they count like a pod, and what terminating pods hold is not counted twice."""

from __future__ import annotations

import msgspec

from apportion.apis import names
from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import T4
from tests.builders.fleets import fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request

GPU = names.NVIDIA_GPU


def test_reserved_gpus_are_given_to_nobody_but_the_owner() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    owner = pod_request("owner", gpus=2)
    fleet.reserve(Reservation("room", "n", {GPU: 2, "cpu": 1000}, owner=owner.uid))
    assert isinstance(group_decision.decide(fleet, Group.of(pod_request(gpus=1)), Policy()), group_decision.Refusal)
    assert fleet.nodes["n"].free("cpu") == 63_000
    before = fleet.record()
    placed = group_decision.decide(fleet, Group.of(owner), Policy())
    assert isinstance(placed, group_decision.Statement)
    assert not fleet.reservations
    placed.undo(fleet)
    assert fleet.record() == before, "the room is reserved again"


def test_reserved_slices_block_their_places() -> None:
    fleet = mig_fleet(1)
    fleet.reserve(Reservation("room", "node-0", {}, (SlicePlacement("node-0-gpu0", "7g.40gb", 0, 8),), owner="x"))
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request(slices={"1g.5gb": 1})), Policy()), group_decision.Refusal
    )
    fleet.release_reservation("room")
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request(slices={"1g.5gb": 1})), Policy()), group_decision.Statement
    )


def test_a_reservation_counts_against_the_number_of_pods() -> None:
    fleet = fleet_of((node_facts("n", pods=1), []))
    fleet.reserve(Reservation("room", "n", {}, owner="x"))
    refused = group_decision.decide(fleet, Group.of(pod_request(cpu="1")), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.code == "TooManyPods"


def test_what_a_leaving_pod_holds_can_be_reserved_and_is_counted_once() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 3))
    victim = pod_request("victim", gpus=1)
    fleet.add_pod(victim, "n")
    fleet.set_releasing(victim.uid, releasing=True)
    fleet.reserve(Reservation("room", "n", {GPU: 2}, owner="x", after=(victim.uid,)))
    state = fleet.nodes["n"]
    assert state.free(GPU) == 1, "one GPU of the victim's and one more"
    assert sum(gpu.takes_whole for gpu in state.gpus.values()) == 1
    fleet.remove_pod(victim.uid)
    assert state.free(GPU) == 1
    assert sum(gpu.takes_whole for gpu in state.gpus.values()) == 1
    assert fleet.releasing == set()


def test_two_reservations_share_what_one_leaving_pod_holds() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 4))
    victim = pod_request("victim", gpus=2)
    fleet.add_pod(victim, "n")
    for key in ("a", "b"):
        fleet.reserve(Reservation(key, "n", {GPU: 1}, owner=key, after=(victim.uid,)))
    assert fleet.nodes["n"].free(GPU) == 2
    fleet.reserve(Reservation("c", "n", {GPU: 1}, owner="c", after=(victim.uid,)))
    assert fleet.nodes["n"].free(GPU) == 1


def test_reserved_slices_may_lie_on_those_of_a_leaving_pod() -> None:
    fleet = mig_fleet(1)
    whole = SlicePlacement("node-0-gpu0", "7g.40gb", 0, 8)
    victim = pod_request("victim", slices={"7g.40gb": 1})
    fleet.add_pod(victim, "node-0")
    fleet.add_slice("claim", whole, victim.uid)
    fleet.reserve(Reservation("room", "node-0", {}, (whole,), owner="x", after=(victim.uid,)))
    fleet.remove_pod(victim.uid)
    fleet.remove_slice("claim")
    gpu = fleet.nodes["node-0"].gpus["node-0-gpu0"]
    assert not gpu.strays
    assert gpu.grid.free_units(gpu.state) == 0


def test_a_pod_that_terminates_is_releasing_and_keeps_what_it_has() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    going = msgspec.structs.replace(pod_request("going", gpus=1), terminating=True)
    fleet.add_pod(going, "n")
    assert fleet.releasing == {going.uid}
    assert fleet.nodes["n"].free(GPU) == 0
    before = fleet.record()
    mark = fleet.checkpoint()
    fleet.remove_pod(going.uid)
    fleet.rollback(mark)
    assert fleet.record() == before


def test_a_pod_that_knows_its_gpu_gets_it_though_it_stood_in_for_a_reservation() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    fleet.reserve(Reservation("room", "n", {GPU: 1}, owner="x"))
    fleet.add_pod(pod_request("p", gpus=1), "n", ("n-gpu0",))
    assert fleet.nodes["n"].gpus["n-gpu0"].whole == "uid-default-p"
    assert fleet.nodes["n"].gpus["n-gpu1"].whole == "room"
