"""What is decided about the pod as a whole, before any node is looked at: one answer for whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision, refusals
from apportion.core.explanations import messages
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.reasons import Code, Reason
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import add_node, fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request


@pytest.mark.parametrize(
    ("facts", "ready", "reason"),
    [
        ({"unschedulable": True}, True, Reason(Code.CORDONED)),
        ({}, False, Reason(Code.AGENT_NOT_READY)),
        ({"cpu": 500}, True, Reason(Code.RESOURCE, "cpu", 1000, 500, 500)),
    ],
    ids=["cordoned", "agent", "cpu"],
)
def test_s06_claims_on_a_node_that_takes_nobody_any_more_are_given_up(
    facts: dict[str, Any],
    ready: bool,  # noqa: FBT001
    reason: Reason,
) -> None:
    """Whoever decides says so: the scheduler, fallback and `why`."""
    fleet = mig_fleet(2)
    request = pod_request("again", slices={"1g.5gb": 1}, cpu="1")
    fleet.add_slice(f"{request.uid}-main-0", SlicePlacement("node-1-gpu0", "1g.5gb", 3, 1), request.uid, node="node-1")
    add_node(fleet, node_facts("node-1", **facts), [(A100, True)], ready=ready)
    refused = group_decision.decide(fleet, Group.of(request), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.code == "ClaimsGivenUp"
    assert messages.of(refused).endswith(f"cannot be used: node node-1 {reason.said}."), "the text of the table"
    assert group_decision.place(fleet, request, Policy()) is None


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ([("main-0", "node-1", "2g.10gb", 0)], Code.NOT_REQUESTED),
        ([("main-0", "node-0", "1g.5gb", 0), ("main-1", "node-1", "1g.5gb", 0)], Code.NOT_TOGETHER),
        ([("main-0", "node-9", "1g.5gb", 0)], Code.NOT_TOGETHER),
        ([("main-0", "node-1", "1g.5gb", 3)], Code.OVERLAPPED),
        ([("main-0", "node-0", "1g.5gb", 0)], Code.NOT_SUFFICIENT),
    ],
    ids=str,
)
def test_s06_each_reason_for_giving_up_claims_is_in_the_table(
    claims: list[tuple[str, str, str, int]], code: Code
) -> None:
    fleet = mig_fleet(2)
    request = pod_request("again", slices={"1g.5gb": 2})
    fleet.add_slice("other", SlicePlacement("node-1-gpu0", "1g.5gb", 3, 1), "uid-other", node="node-1")
    fleet.add_slice("large", SlicePlacement("node-0-gpu0", "3g.20gb", 4, 4), "uid-large", node="node-0")
    fleet.add_slice("medium", SlicePlacement("node-0-gpu0", "2g.10gb", 2, 2), "uid-medium", node="node-0")
    fleet.add_slice("small", SlicePlacement("node-0-gpu0", "1g.5gb", 1, 1), "uid-small", node="node-0")
    for key, node, profile, start in claims:
        size = 2 if profile == "2g.10gb" else 1
        placement = SlicePlacement(f"{node}-gpu0", profile, start, size)
        fleet.add_slice(f"{request.uid}-{key}", placement, request.uid, node=node)
    refused = group_decision.decide(fleet, Group.of(request), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert refused.detail == Code.CLAIMS_GIVEN_UP.row.said(code.row.said())


def test_what_an_attempt_found_out_is_known_by_its_text() -> None:
    request = pod_request("again")
    for code in Code:
        text = messages.of(refusals.of_pod(request, code, "it is {late}", 3))
        assert messages.attempt_in(text) == (code if code.row.from_attempt else None)


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
