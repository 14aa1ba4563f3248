"""Statements: applied all or none, taken back to the byte, and confirmed by what the cluster shows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from apportion.apis.errors import LedgerError
from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import Bind, BindVolume, ClaimSlice, Evict, ObjectKind, ObjectRef, Reserve, Unreserve
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from apportion.core.volumes import Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts
from tests.builders.accelerators import T4
from tests.builders.fleets import fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request
from tests.builders.statements import LOCAL, NODES, applied, crowd


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
def test_undoing_statements_in_any_order_restores_the_fleet_to_the_byte(seed: int, count: int) -> None:
    dice = random.Random(seed)
    fleet = crowd(dice)
    before = fleet.record()
    statements = applied(dice, fleet, count)
    dice.shuffle(statements)
    for statement in statements:
        statement.undo(fleet)
    assert fleet.record() == before


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
def test_undoing_operations_in_any_order_restores_the_fleet_to_the_byte(seed: int, count: int) -> None:
    dice = random.Random(seed)
    fleet = crowd(dice)
    before = fleet.record()
    operations = [each for statement in applied(dice, fleet, count) for each in statement.operations]
    dice.shuffle(operations)
    for each in operations:
        each.undo(fleet)
    assert fleet.record() == before


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_statement_can_be_undone_after_other_changes(seed: int) -> None:
    """What is left is what the other changes alone would have left."""
    dice, same = random.Random(seed), random.Random(seed)
    fleet, alone = crowd(dice), crowd(same)
    statements = applied(dice, fleet, 4)
    for each in (fleet, alone):
        _others(random.Random(seed), each)
    dice.shuffle(statements)
    for statement in statements:
        statement.undo(fleet)
    assert fleet.record() == alone.record()


def _others(dice: random.Random, fleet: Fleet) -> None:
    for number in range(6):
        where = f"node-{dice.randrange(NODES)}"
        fleet.add_pod(pod_request(f"other-{number}", cpu="1"), where)
        fleet.add_slice(f"other-{number}", SlicePlacement(f"{where}-gpu0", "2g.10gb", dice.randrange(6), 2), "x")
        fleet.set_node(node_facts(where, cpu=dice.choice((32_000, 64_000))))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rollback_takes_statements_back_to_the_byte(seed: int) -> None:
    dice = random.Random(seed)
    fleet = crowd(dice)
    kept = applied(dice, fleet, 3)
    before = fleet.record()
    mark = fleet.checkpoint()
    applied(dice, fleet, 3)
    for statement in kept:
        statement.undo(fleet)
    fleet.rollback(mark)
    assert fleet.record() == before


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_was_decided_can_be_undone_and_decided_again_in_the_same_way(seed: int) -> None:
    dice = random.Random(seed)
    fleet, policy = crowd(dice), Policy("best-fit")
    before = fleet.record()
    wants = dice.choice(({"slices": {"1g.5gb": 2}}, {"gpus": 1}, {"fraction": "0.3"}, {"cpu": "1"}))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data-1"}}] if dice.random() < 0.5 else []
    group = Group.of(
        *(pod_request(f"p-{n}", volumes=volumes if n == 0 else [], **wants) for n in range(dice.randint(1, 3)))
    )
    first = group_decision.decide(fleet, group, policy)
    if isinstance(first, group_decision.Refusal):
        assert fleet.record() == before
        return
    decided = fleet.record()
    first.undo(fleet)
    assert fleet.record() == before
    assert group_decision.decide(fleet, group, policy) == first
    assert fleet.record() == decided


def test_a_bind_is_written_after_the_claims_and_volumes_of_its_pod() -> None:
    fleet = mig_fleet(1)
    fleet.storage = Storage(
        {"default/data": VolumeClaimFacts(storage_class=LOCAL, uid="u")}, {"pv": VolumeFacts(version="7")}
    )
    fleet.storage.volumes["pv"] = VolumeFacts(storage_class=LOCAL, version="7")
    fleet.storage.classes[LOCAL] = StorageClassFacts(waits_for_pod=True)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    statement = group_decision.decide(fleet, Group.of(pod_request(slices={"1g.5gb": 2}, volumes=volumes)), Policy())
    assert isinstance(statement, Statement)
    first, second = statement.waves()
    assert [type(each) for each in first] == [ClaimSlice, ClaimSlice, BindVolume]
    assert [type(each) for each in second] == [Bind]
    chosen = first[2]
    assert isinstance(chosen, BindVolume)
    assert (chosen.volume, chosen.volume_version, chosen.volume_claim_uid) == ("pv", "7", "u")


def test_operations_that_wait_for_each_other_are_an_error() -> None:
    one, two = pod_request("one"), pod_request("two")
    ring = (
        Bind(one, "n", after=(ObjectRef(ObjectKind.POD, two.uid),)),
        Bind(two, "n", after=(ObjectRef(ObjectKind.POD, one.uid),)),
    )
    with pytest.raises(LedgerError, match="wait for each other"):
        Statement(Group.of(one, two), ring).waves()


def test_s04_a_volume_is_chosen_once() -> None:
    fleet = mig_fleet(2)
    fleet.storage = Storage(
        {f"default/{name}": VolumeClaimFacts(storage_class=LOCAL) for name in ("a", "b")},
        {"pv": VolumeFacts(storage_class=LOCAL)},
        {LOCAL: StorageClassFacts(waits_for_pod=True)},
    )
    first, second = (
        pod_request(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}]) for name in ("a", "b")
    )
    placed = group_decision.decide(fleet, Group.of(first), Policy())
    assert isinstance(placed, Statement)
    refused = group_decision.decide(fleet, Group.of(second), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.code == "VolumeNodeAffinity"
    placed.undo(fleet)
    assert isinstance(group_decision.decide(fleet, Group.of(second), Policy()), Statement)


def test_a_reservation_stays_away_when_its_making_and_its_end_are_undone_in_that_order() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    before = fleet.record()
    room = Reservation("room", "n", {"cpu": 1000}, owner="x")
    made, ended = Reserve(pod_request("x"), room), Unreserve(room)
    made.apply(fleet)
    ended.apply(fleet)
    made.undo(fleet)
    ended.undo(fleet)
    assert fleet.record() == before


def test_a_reservation_whose_end_can_be_undone_is_not_made_again() -> None:
    """Otherwise two reservations would have one key once the end is undone."""
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    room = Reservation("room", "n", {"cpu": 1000}, owner="x")
    fleet.reserve(room)
    ended = Unreserve(room)
    ended.apply(fleet)
    with pytest.raises(LedgerError, match="already reserved"):
        Reserve(pod_request("x"), room).apply(fleet)
    ended.confirm(fleet)
    Reserve(pod_request("x"), room).apply(fleet)
    ended.undo(fleet)
    assert fleet.reservations == {"room": room}


def test_an_eviction_that_is_undone_leaves_a_pod_that_terminates_for_another_reason() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    victim = pod_request("victim", gpus=1)
    fleet.add_pod(victim, "n")
    evict = Evict(victim, "n")
    evict.apply(fleet)
    fleet.add_pod(structs.replace(victim, terminating=True), "n")
    evict.undo(fleet)
    assert fleet.releasing == {victim.uid}


def test_the_record_of_a_fleet_tells_apart_whatever_decisions_depend_on() -> None:
    def made() -> Fleet:
        fleet = fleet_of((node_facts("n"), [(T4, False)]))
        fleet.add_pod(pod_request("p", cpu="1"), "n")
        fleet.storage = Storage({"default/a": VolumeClaimFacts()}, {"pv": VolumeFacts()}, {LOCAL: StorageClassFacts()})
        fleet.set_namespace("default", {"team": "a"})
        return fleet

    records = [made() for _ in range(7)]
    _, pods, claims, volumes, classes, namespaces, sharing = records
    pods.add_pod(pod_request("p", cpu="1", labels={"app": "x"}), "n")
    for each, kind, facts in (
        (claims, "volume_claims", {"default/a": VolumeClaimFacts(volume="pv")}),
        (volumes, "volumes", {"pv": VolumeFacts(claim="default/a")}),
        (classes, "classes", {LOCAL: StorageClassFacts(waits_for_pod=True)}),
    ):
        assert each.storage is not None
        setattr(each.storage, kind, facts)
    namespaces.set_namespace("default", {"team": "b"})
    sharing.sharing = False
    assert made().record() == records[0].record()
    assert len({each.record() for each in records}) == len(records)
