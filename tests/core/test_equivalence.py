"""Equivalence classes: the identity of a pod does not count, labels only if a rule selects by them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from apportion.apis import names
from apportion.core import group_decision
from apportion.core.equivalence import node_class, request_class
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request

INDEX = "batch.kubernetes.io/job-completion-index"


def keeping_apart(**labels: str) -> dict[str, Any]:
    term = {"topologyKey": names.ZONE_LABEL, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_pods_of_an_indexed_job_ask_for_the_same() -> None:
    fleet = mig_fleet(1)
    pods = [
        msgspec.structs.replace(
            pod_request(
                f"job-{n}", slices={"1g.5gb": 1}, labels={INDEX: str(n), "job": "x"}, hostname=f"job-{n}", priority=n
            ),
            created=f"2026-01-01T00:00:{n:02}Z",
            owner=f"owner-{n}",
        )
        for n in range(5)
    ]
    assert len({request_class(fleet, request) for request in pods}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"slices": {"1g.5gb": 2}},
        {"slices": {"2g.10gb": 1}},
        {"slices": {"1g.5gb": 1}, "cpu": "1"},
        {"slices": {"1g.5gb": 1}, "nodeSelector": {"disk": "ssd"}},
        {"slices": {"1g.5gb": 1}, "annotations": {names.POLICY: "pack"}},
        {"slices": {"1g.5gb": 1}, "schedulingGates": [{"name": "later"}]},
        {"gpus": 1},
        {"fraction": "0.5"},
    ],
    ids=str,
)
def test_what_a_pod_asks_for_counts(other: dict[str, Any]) -> None:
    fleet = mig_fleet(1)
    assert request_class(fleet, pod_request(slices={"1g.5gb": 1})) != request_class(fleet, pod_request(**other))


def test_labels_count_where_the_pods_own_rules_look_at_them() -> None:
    fleet = mig_fleet(1)
    rule = {"affinity": keeping_apart(app="a")}
    classes = [
        request_class(fleet, pod_request(labels={"app": app, INDEX: index}, **rule))
        for app, index in (("a", "0"), ("a", "1"), ("b", "0"))
    ]
    assert classes[0] == classes[1] != classes[2]


def test_labels_count_where_a_pod_that_is_there_keeps_others_away_by_them() -> None:
    fleet = mig_fleet(1)
    plain = [pod_request(labels={"app": app, INDEX: index}) for app, index in (("a", "0"), ("a", "1"), ("b", "0"))]
    assert len({request_class(fleet, request) for request in plain}) == 1
    loner = pod_request("loner", affinity=keeping_apart(app="a"))
    fleet.add_pod(loner, "node-0")
    classes = [request_class(fleet, request) for request in plain]
    assert classes[0] == classes[1] != classes[2]
    other_namespace = pod_request(labels={"app": "a"}, namespace="other")
    assert request_class(fleet, other_namespace) != classes[0]
    fleet.remove_pod(loner.uid)
    assert len({request_class(fleet, request) for request in plain}) == 1
    assert request_class(fleet, other_namespace) == request_class(fleet, plain[0])


def test_trying_out_a_pod_with_rules_leaves_the_classes_as_they_were() -> None:
    fleet = mig_fleet(1)
    labels = fleet.apart_labels
    mark = fleet.checkpoint()
    fleet.add_pod(pod_request("loner", affinity=keeping_apart(app="a")), "node-0")
    assert fleet.apart_labels == {"app"}
    fleet.rollback(mark)
    assert fleet.apart_labels == labels == frozenset()


def test_for_one_node_alone_labels_and_namespaces_never_count() -> None:
    assert node_class(pod_request(labels={"a": "1"})) == node_class(pod_request(labels={"a": "2"}, namespace="other"))


@pytest.mark.parametrize("seed", range(40))
def test_pods_of_one_class_are_decided_alike(seed: int) -> None:
    dice = random.Random(seed)
    fleet = _crowded(dice)
    outcomes: dict[object, object] = {}
    for _ in range(30):
        request = _request(dice)
        key = request_class(fleet, request)
        found = _outcome(fleet, request)
        assert outcomes.setdefault(key, found) == found
    assert len(outcomes) < 30


def _crowded(dice: random.Random) -> Fleet:
    zones = {names.ZONE_LABEL: dice.choice("ab")}
    fleet = fleet_of(
        *((node_facts(f"n-{n}", labels=zones | {names.ZONE_LABEL: dice.choice("ab")}), _gpus(dice)) for n in range(4))
    )
    for _ in range(6):
        request = _request(dice)
        group_decision.decide(fleet, Group.of(request), Policy("first-fit"), explained=False)
    return fleet


def _gpus(dice: random.Random) -> list[tuple[str, bool]]:
    return [(A100, True)] * dice.randint(0, 2) + [(T4, False)] * dice.randint(0, 2)


def _request(dice: random.Random) -> Any:
    wants: dict[str, Any] = dice.choice(({"slices": {"3g.20gb": 1}}, {"gpus": 1}))
    labels = {"app": dice.choice("xy"), INDEX: str(dice.randrange(9))}
    if dice.random() < 0.3:
        wants = wants | {"affinity": keeping_apart(app=dice.choice("xy"))}
    return pod_request(namespace=dice.choice(("default", "other")), labels=labels, **wants)


def _outcome(fleet: Fleet, request: Any) -> object:
    mark = fleet.checkpoint()
    try:
        outcome = group_decision.decide(fleet, Group.of(request), Policy("first-fit"))
    finally:
        fleet.rollback(mark)
    if isinstance(outcome, group_decision.Statement):
        return outcome.node, [claim.placement for claim in outcome.claims]
    return outcome.code, outcome.groups, outcome.remedy and outcome.remedy.kind
