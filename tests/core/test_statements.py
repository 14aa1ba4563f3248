"""Statements: applied all or none, taken back to the byte, and confirmed by what the cluster shows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.apis import names
from apportion.apis.errors import LedgerError
from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import (
    Bind,
    BindShare,
    BindVolume,
    ClaimSlice,
    Evict,
    ObjectKind,
    ObjectRef,
    Operation,
    Reserve,
    Unreserve,
)
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from apportion.core.volumes import Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request

NODES = 3
LOCAL = "local"


def crowd(dice: random.Random) -> Fleet:
    """A few nodes with GPUs of both kinds, pods, reservations and volumes, some of them impossible."""
    fleet = fleet_of(
        *((node_facts(f"node-{n}"), [(A100, True)] + [(T4, False)] * dice.randint(0, 3)) for n in range(NODES))
    )
    fleet.storage = Storage(classes={LOCAL: StorageClassFacts(waits_for_pod=True)})
    for number in range(6):
        fleet.storage.volume_claims[f"default/data-{number}"] = VolumeClaimFacts(storage_class=LOCAL)
        fleet.storage.volumes[f"pv-{number}"] = VolumeFacts(storage_class=LOCAL)
    for number in range(dice.randint(0, 8)):
        wants = dice.choice(({"gpus": 1}, {"gpus": 2}, {"cpu": "1"}))
        fleet.add_pod(pod_request(f"old-{number}", **wants), f"node-{dice.randrange(NODES)}")
    for number in range(dice.randint(0, 3)):
        fleet.reserve(_reservation(dice, f"old-room-{number}", fleet))
    return fleet


def _reservation(dice: random.Random, key: str, fleet: Fleet) -> Reservation:
    where = f"node-{dice.randrange(NODES)}"
    resources = {"cpu": dice.choice((500, 1000))}
    if dice.random() < 0.6:
        resources[names.NVIDIA_GPU] = dice.randint(1, 2)
    there = [uid for uid, home in fleet.pod_nodes.items() if home == where]
    after = tuple(dice.sample(there, min(len(there), dice.randint(0, 2))))
    return Reservation(key, where, resources, tuple(_places(dice, where)), owner=key, after=after)


def _places(dice: random.Random, where: str) -> list[SlicePlacement]:
    return [SlicePlacement(f"{where}-gpu0", "1g.5gb", dice.randrange(7), 1) for _ in range(dice.randint(0, 2))]


def operation(dice: random.Random, fleet: Fleet, number: int) -> Operation:  # noqa: PLR0911
    """Any operation; some cannot be applied."""
    where, name = f"node-{dice.randrange(NODES)}", f"new-{dice.randrange(10)}"
    match dice.randrange(7):
        case 0:
            request = pod_request(name, slices={"1g.5gb": 1})
            placement = SlicePlacement(f"{where}-gpu0", dice.choice(("1g.5gb", "3g.20gb")), dice.randrange(8), 1)
            return ClaimSlice(f"claim-{dice.randrange(8)}", request, where, placement, ("main",))
        case 1:
            volume = dice.choice(("", f"pv-{dice.randrange(6)}"))
            return BindVolume(pod_request(name), where, f"data-{dice.randrange(6)}", volume=volume)
        case 2 | 3:
            request = pod_request(name, **dice.choice(({"gpus": 1}, {"gpus": 3}, {"cpu": "2"})))
            return Bind(request, where, dice.choice(((), (f"{where}-gpu1",))))
        case 4:
            shares = tuple((f"{where}-gpu{n}", 1000 * n) for n in range(1, dice.randint(2, 3)))
            return BindShare(pod_request(name, fraction="0.5"), where, shares)
        case 5:
            victims = [uid for home in fleet for uid in home.pods]
            if victims and dice.random() < 0.8:
                uid = dice.choice(sorted(victims))
                home = fleet.pod_nodes[uid]
                return Evict(fleet.nodes[home].pods[uid], home)
            return Evict(pod_request("nobody"), where)
        case _:
            # Only those of before: whoever ends a reservation of another statement is undone before that one.
            kept = sorted(key for key in fleet.reservations if key.startswith("old-room"))
            if kept and dice.random() < 0.5:
                return Unreserve(fleet.reservations[dice.choice(kept)])
            return Reserve(pod_request(name), _reservation(dice, f"room-{number}", fleet))


def applied(dice: random.Random, fleet: Fleet, count: int) -> list[Statement]:
    """Statements of one to three operations that could be applied; those that could not left no trace."""
    statements = []
    for number in range(count):
        parts = tuple(operation(dice, fleet, 10 * number + part) for part in range(dice.randint(1, 3)))
        statement = Statement(Group.of(pod_request(f"group-{number}")), parts)
        before = fleet.record()
        try:
            statement.apply(fleet)
        except LedgerError:
            assert fleet.record() == before, "all or nothing"
        else:
            statements.append(statement)
    return statements


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
