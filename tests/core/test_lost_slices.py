"""A bound pod whose claims are gone gets other slices on its node, or has to go."""

from __future__ import annotations

import pytest

from apportion.apis.identities import PodUID
from apportion.core import group_decision, lost_slices
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import ClaimSlice, Evict
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from tests.builders.fleets import mig_fleet
from tests.builders.pods import pod_request

POLICY = Policy.named("fragmentation")


def placed(fleet: Fleet, name: str, profile: str, count: int = 1) -> Statement:
    outcome = group_decision.decide(fleet, Group.of(pod_request(name, slices={profile: count})), POLICY)
    assert isinstance(outcome, Statement)
    return outcome


def test_s06_a_pod_with_all_its_claims_lacks_nothing() -> None:
    fleet = mig_fleet(1)
    uid = placed(fleet, "a", "1g.5gb").binds[0].uid
    assert lost_slices.missing(fleet, uid) == []
    assert lost_slices.missing(fleet, PodUID("nobody")) == []


@pytest.mark.parametrize("lost", [1, 2])
def test_s06_lost_claims_are_made_anew_on_the_pods_node(lost: int) -> None:
    fleet = mig_fleet(2)
    first = placed(fleet, "a", "2g.10gb", 2)
    for claim in first.claims[:lost]:
        fleet.remove_slice(claim.name)
    before = fleet.record()
    statement = lost_slices.replace(fleet, first.binds[0].uid, POLICY)
    assert statement is not None
    assert all(isinstance(operation, ClaimSlice) for operation in statement.operations)
    assert {claim.name for claim in statement.claims} == {claim.name for claim in first.claims[:lost]}
    assert {claim.node for claim in statement.claims} == {first.node}
    statement.undo(fleet)
    assert fleet.record() == before


def test_s06_without_another_place_on_its_node_the_pod_is_evicted() -> None:
    fleet = mig_fleet(1, gpus=1)
    first = placed(fleet, "a", "7g.40gb")
    fleet.remove_slice(first.claims[0].name)
    placed(fleet, "b", "1g.5gb")
    statement = lost_slices.replace(fleet, first.binds[0].uid, POLICY)
    assert statement is not None
    (operation,) = statement.operations
    assert isinstance(operation, Evict)
    assert "7g.40gb" in operation.reason
    assert lost_slices.missing(fleet, first.binds[0].uid) == [], "one that is on its way out gets nothing more"


def test_s06_nothing_is_decided_while_the_agent_is_not_ready() -> None:
    fleet = mig_fleet(1, gpus=1)
    first = placed(fleet, "a", "1g.5gb")
    fleet.remove_slice(first.claims[0].name)
    node = fleet.nodes[first.node]
    fleet.set_gpus(first.node, [gpu.facts for gpu in node.gpus.values()], ready=False)
    assert lost_slices.replace(fleet, first.binds[0].uid, POLICY) is None
