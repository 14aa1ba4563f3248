"""What is decided about the pod as a whole, before any node is looked at: one answer for whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import add_node, fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request


@pytest.mark.parametrize(
    ("facts", "ready"),
    [({"unschedulable": True}, True), ({}, False), ({"cpu": 500}, True)],
    ids=["cordoned", "agent", "cpu"],
)
def test_s06_claims_on_a_node_that_takes_nobody_any_more_are_given_up(facts: dict[str, Any], ready: bool) -> None:  # noqa: FBT001
    """Whoever decides says so: the scheduler, fallback and `why`."""
    fleet = mig_fleet(2)
    request = pod_request("again", slices={"1g.5gb": 1}, cpu="1")
    fleet.add_slice(f"{request.uid}-main-0", SlicePlacement("node-1-gpu0", "1g.5gb", 3, 1), request.uid, node="node-1")
    add_node(fleet, node_facts("node-1", **facts), [(A100, True)], ready=ready)
    refused = group_decision.decide(fleet, Group.of(request), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.code == "ClaimsGivenUp"
    assert group_decision.place(fleet, request, Policy()) is None


def test_s06_claims_that_are_being_deleted_are_waited_for() -> None:
    fleet = mig_fleet(2)
    request = pod_request("again", slices={"1g.5gb": 1})
    place = SlicePlacement("node-1-gpu0", "1g.5gb", 3, 1)
    fleet.add_slice(f"{request.uid}-main-0", place, request.uid, node="node-1", releasing=True)
    refused = group_decision.decide(fleet, Group.of(request), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.code == "ClaimsLeaving"


def test_g01_where_nobody_binds_shares_a_pod_with_one_is_told_so() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request(fraction="0.5")), Policy()), group_decision.Statement
    )
    fleet.sharing = False
    refused = group_decision.decide(fleet, Group.of(pod_request(fraction="0.5")), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.code == "NoSharing"
