"""Equivalence classes: the identity of a pod does not count, labels only if a rule selects by them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from apportion.apis import names
from apportion.apis.identities import NodeName
from apportion.apis.selectors import NodeSelector, NodeSelectorTerm, Requirement
from apportion.core import group_decision
from apportion.core.equivalence import alone, node_class, request_class
from apportion.core.explanations import messages
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group, successor_key
from apportion.core.operations import BindVolume
from apportion.core.policies import Policy
from apportion.core.volumes import Storage, StorageClassFacts, VolumeChoice, VolumeClaimFacts, VolumeFacts
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request

NAMESPACES = ("default", "other")
PODS = tuple(f"pod-{number}" for number in range(8))
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


def test_the_order_of_resources_does_not_count() -> None:
    fleet = mig_fleet(1)
    orders = ({"cpu": "1", "memory": "1Gi"}, {"memory": "1Gi", "cpu": "1"})
    assert len({request_class(fleet, pod_request(limits=limits)) for limits in orders}) == 1
    one, other = (msgspec.structs.replace(pod_request(), resources=r) for r in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert node_class(one) == node_class(other)


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


SCRATCH = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]


def with_claims(**claims: VolumeClaimFacts) -> tuple[Fleet, list[Hashable]]:
    """Pods of a Job with an ephemeral volume, and their classes when the pods of these names have their claims."""
    fleet = mig_fleet(1)
    fleet.storage = Storage(classes={"local": StorageClassFacts(waits_for_pod=True)})
    fleet.storage.volume_claims |= {f"default/{name}-scratch": claim for name, claim in claims.items()}
    return fleet, [request_class(fleet, pod_request(name, volumes=SCRATCH)) for name in ("a", "b")]


def test_ephemeral_volumes_count_by_what_they_ask_for() -> None:
    unbound = VolumeClaimFacts(storage_class="local", size=5)
    for claims, same in (
        ({}, True),
        ({"a": replace(unbound, uid="1"), "b": replace(unbound, uid="2")}, True),
        ({"a": unbound}, False),
        ({"a": unbound, "b": replace(unbound, size=9)}, False),
        ({"a": replace(unbound, volume="pv-1"), "b": replace(unbound, volume="pv-2")}, False),
        ({"a": unbound, "b": replace(unbound, deleting=True)}, False),
    ):
        _, (one, other) = with_claims(**claims)
        assert (one == other) is same, claims


def test_a_claim_for_which_a_volume_is_meant_is_like_no_other() -> None:
    unbound = VolumeClaimFacts(storage_class="local", size=5)
    fleet, (one, other) = with_claims(a=unbound, b=unbound)
    assert one == other
    assert fleet.storage is not None
    fleet.choose_volume("default/a-scratch", VolumeChoice("node-0"))
    assert request_class(fleet, pod_request("a", volumes=SCRATCH)) != other
    fleet.forget_volume("default/a-scratch")
    fleet.storage.volumes["pv"] = VolumeFacts(claim="default/a-scratch", storage_class="local")
    assert request_class(fleet, pod_request("a", volumes=SCRATCH)) != other


def test_a_pod_uses_the_claim_of_its_own_ephemeral_volume() -> None:
    fleet, _ = with_claims(a=VolumeClaimFacts(storage_class="local", size=5))
    assert fleet.storage is not None
    fleet.storage.volumes["pv"] = VolumeFacts(storage_class="local", size=9)
    placed = group_decision.decide(fleet, Group.of(pod_request("a", volumes=SCRATCH)), Policy())
    assert isinstance(placed, group_decision.Statement)
    assert fleet.storage.chosen == {"default/a-scratch": VolumeChoice("node-0", "pv")}
    refused = group_decision.decide(fleet, Group.of(pod_request("b", volumes=SCRATCH)), Policy())
    assert isinstance(refused, group_decision.Refusal)
    assert "cannot use volume claim of ephemeral volume scratch, which is missing" in messages.of(refused)


def test_a_pod_for_which_the_place_of_a_moved_pod_is_kept_is_like_no_other() -> None:
    fleet = fleet_of((node_facts("n"), ()))
    successor, rival = pod_request("successor", owner="a"), pod_request("rival", owner="b")
    assert not alone(fleet, Group.of(successor))
    fleet.reserve(Reservation("place", "n", {"cpu": 1}, owner=successor_key(successor)))
    assert [alone(fleet, Group.of(each)) for each in (successor, rival)] == [True, False]


def test_g05_a_pod_that_could_not_be_bound_is_like_no_other() -> None:
    fleet = mig_fleet(2)
    failed, other = (pod_request(name, fraction="0.5") for name in ("failed", "other"))
    fleet.failed_nodes[failed.uid] = (NodeName("node-0"),)
    assert [alone(fleet, Group.of(*each, key="g")) for each in ((failed, other), (other,))] == [True, False]


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
    fleet = fleet_of(
        *((node_facts(f"n-{n}", labels={names.ZONE_LABEL: dice.choice("ab")}), _gpus(dice)) for n in range(4))
    )
    for namespace in NAMESPACES:
        fleet.set_namespace(namespace, {"team": dice.choice("xy")})
    fleet.storage = _storage(dice)
    for _ in range(6):
        request = _request(dice)
        group_decision.decide(fleet, Group.of(request), Policy("first-fit"), explained=False)
    return fleet


def _storage(dice: random.Random) -> Storage:
    """Local volumes on some nodes, and claims of some pods: missing, unbound or bound."""
    storage = Storage(classes={"local": StorageClassFacts(waits_for_pod=True)})
    for number in range(3):
        expression = Requirement(key=names.HOSTNAME_LABEL, operator="In", values=(f"n-{dice.randrange(4)}",))
        there = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(expression,)),))
        storage.volumes[f"pv-{number}"] = VolumeFacts(there, storage_class="local", size=dice.choice((5, 9)))
    for namespace, name in itertools.product(NAMESPACES, PODS):
        size, volume = dice.choice((5, 9)), dice.choice(("", "", "", "pv-0"))
        if dice.random() < 0.7:
            facts = VolumeClaimFacts(volume, storage_class="local", size=size, uid=f"{namespace}-{name}")
            storage.volume_claims[f"{namespace}/{name}-scratch"] = facts
    return storage


def _gpus(dice: random.Random) -> list[tuple[str, bool]]:
    return [(A100, True)] * dice.randint(0, 2) + [(T4, False)] * dice.randint(0, 2)


def _request(dice: random.Random) -> Any:
    wants: dict[str, Any] = dice.choice(({"slices": {"3g.20gb": 1}}, {"gpus": 1}))
    labels = {"app": dice.choice("xy"), INDEX: str(dice.randrange(9))}
    if dice.random() < 0.5:
        wants = wants | dice.choice((_affinity, _affinity, _spread, _scratch))(dice)
    uid = f"uid-{dice.getrandbits(64)}"
    return pod_request(dice.choice(PODS), uid=uid, namespace=dice.choice(NAMESPACES), labels=labels, **wants)


def _affinity(dice: random.Random) -> dict[str, Any]:
    term = _selecting(dice)
    if dice.random() < 0.3:
        term["namespaceSelector"] = {"matchLabels": {"team": dice.choice("xy")}}
    kind, rule = dice.choice(("podAffinity", "podAntiAffinity")), "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {kind: {rule: [term]}}}


def _spread(dice: random.Random) -> dict[str, Any]:
    how = dice.choice(("DoNotSchedule", "ScheduleAnyway"))
    return {"topologySpreadConstraints": [_selecting(dice) | {"maxSkew": 1, "whenUnsatisfiable": how}]}


def _scratch(_dice: random.Random) -> dict[str, Any]:
    return {"volumes": SCRATCH}


def _selecting(dice: random.Random) -> dict[str, Any]:
    key = dice.choice((names.ZONE_LABEL, names.HOSTNAME_LABEL))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": dice.choice("xy")}}}


def _outcome(fleet: Fleet, request: Any) -> object:
    mark = fleet.checkpoint()
    try:
        outcome = group_decision.decide(fleet, Group.of(request), Policy("first-fit"))
    finally:
        fleet.rollback(mark)
    if isinstance(outcome, group_decision.Statement):
        volumes = [each.volume for each in outcome.operations if isinstance(each, BindVolume)]
        return outcome.node, [claim.placement for claim in outcome.claims], volumes
    return outcome.code, outcome.groups, outcome.remedy and outcome.remedy.kind
