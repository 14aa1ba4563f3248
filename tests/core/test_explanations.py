"""Why a pod waits: numbers that add up, and a change that really admits it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID
from apportion.core import group_decision
from apportion.core.explanations import messages, remedies
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Taint
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal, Remedy
from tests.builders.accelerators import A100, CATALOG, H100, T4
from tests.builders.fleets import add_node, fleet_of, mig_fleet, node_facts
from tests.builders.pods import pod_request


def refused(fleet: Fleet, **wants: object) -> group_decision.Refusal:
    outcome = group_decision.decide(fleet, Group.of(pod_request(**wants)), Policy())
    assert isinstance(outcome, group_decision.Refusal)
    return outcome


def fill(fleet: Fleet, **wants: object) -> int:
    """Place pods of one kind until no more fit."""
    count = 0
    while isinstance(
        group_decision.decide(fleet, Group.of(pod_request(**wants)), Policy(), explained=False),
        group_decision.Statement,
    ):
        count += 1
    return count


def test_x01_something_smaller_comes_before_ending_pods() -> None:
    fleet = mig_fleet(1)
    fill(fleet, slices={"3g.20gb": 1})
    for name in list(fleet.slices)[:1]:
        fleet.remove_slice(name)
    group_decision.decide(fleet, Group.of(pod_request(slices={"1g.5gb": 1})), Policy())
    refusal = refused(fleet, slices={"3g.20gb": 1})
    assert refusal.remedy is not None
    assert (refusal.remedy.kind, refusal.remedy.instead) == (remedies.SMALLER, "2g.10gb")
    assert "request 2g.10gb instead of 3g.20gb" in messages.of(refusal)


def test_x01_a_toleration_or_a_selector_comes_before_something_smaller() -> None:
    fleet = fleet_of((node_facts("full"), [(A100, True)]))
    fill(fleet, slices={"3g.20gb": 1})
    tainted = node_facts("tainted", taints=[Taint(key="team", value="x", effect="NoSchedule")], labels={"disk": "hdd"})
    add_node(fleet, tainted, [(A100, True)])
    assert messages.of(refused(fleet, slices={"3g.20gb": 1})).endswith("tolerate the taint team=x:NoSchedule.")
    add_node(fleet, node_facts("plain", labels={"disk": "hdd"}), [(A100, True)])
    found = refused(fleet, slices={"3g.20gb": 1}, nodeSelector={"disk": "ssd"})
    assert messages.of(found).endswith("remove disk=ssd from the pod's node selector.")


def test_x01_a_taint_that_tells_of_the_condition_of_a_node_is_not_tolerated_first() -> None:
    fleet = fleet_of((node_facts("full"), [(A100, True)]))
    fill(fleet, slices={"3g.20gb": 1})
    sick = node_facts("sick", taints=[Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")])
    add_node(fleet, sick, [(A100, True)])
    remedy = refused(fleet, slices={"3g.20gb": 1}).remedy
    assert remedy is not None
    assert remedy.kind == remedies.FREE


def test_x01_another_model_comes_next() -> None:
    fleet = fleet_of((node_facts("a"), [(A100, True)]), (node_facts("h"), [(H100, True)]))
    fill(fleet, slices={"1g.5gb": 1})
    refusal = refused(fleet, slices={"1g.5gb": 1})
    assert refusal.remedy is not None
    assert (refusal.remedy.kind, refusal.remedy.instead) == (remedies.MODEL, "1g.10gb")


def test_x01_another_product_comes_before_ending_pods_where_the_pod_insists_on_one() -> None:
    product = names.GPU_PRODUCT_LABEL
    fleet = fleet_of(
        (node_facts("a", labels={product: "Tesla-T4"}), [(T4, False)]),
        (node_facts("b", labels={product: "NVIDIA-L4"}), [(T4, False)]),
    )
    assert fill(fleet, gpus=1, nodeSelector={product: "Tesla-T4"}) == 1
    term = {"matchExpressions": [{"key": product, "operator": "In", "values": ["Tesla-T4"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    for rule in ({"nodeSelector": {product: "Tesla-T4"}}, {"affinity": {"nodeAffinity": required}}):
        refusal = refused(fleet, gpus=1, **rule)
        assert refusal.remedy is not None
        assert refusal.remedy.kind == remedies.MODEL
        assert messages.of(refusal).endswith(f"request {product} NVIDIA-L4 instead of Tesla-T4.")
        changed = remedies.apply(fleet, pod_request(gpus=1, **rule), refusal.remedy)
        assert isinstance(
            group_decision.decide(fleet, Group.of(changed), Policy(), explained=False), group_decision.Statement
        )
        fleet.remove_pod(changed.uid)


def test_x01_less_of_a_gpu_is_said_in_the_words_of_the_request() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    assert messages.of(refused(fleet, gpus=3)).endswith("request nvidia.com/gpu 2 instead of 3.")
    fill(fleet, fraction="0.7")
    assert messages.of(refused(fleet, fraction="0.7")).endswith("request gpu-fraction 0.3 instead of 0.7.")
    assert messages.of(refused(fleet, memory=9000)).endswith("request gpu-memory 4608 instead of 9000.")
    fill(fleet, memory=4500)
    refusal = refused(fleet, fraction="0.5")
    assert refusal.remedy is not None
    assert refusal.remedy.kind != remedies.SMALLER, "what is left is less than the least that may be asked for"


def test_an_empty_fleet_is_said_to_be_empty() -> None:
    assert messages.of(refused(Fleet(CATALOG), slices={"1g.5gb": 1})) == "0/0 nodes are available for 1 x 1g.5gb."


@pytest.mark.parametrize("seed", range(60))
def test_x01_applying_the_cheapest_change_admits_the_pod(seed: int) -> None:
    dice = random.Random(seed)
    fleet, policy = _crowded(dice), Policy(dice.choice(("fragmentation", "pack", "first-fit")))
    seen: Counter[str] = Counter()
    for number in range(25):
        request = pod_request(f"late-{number}", **_wants(dice))
        before = fleet.record()
        outcome = group_decision.decide(fleet, Group.of(request), policy)
        if isinstance(outcome, group_decision.Statement):
            outcome.undo(fleet)
            continue
        assert fleet.record() == before, "explaining changes nothing"
        assert sum(len(group.nodes) for group in outcome.groups) == outcome.total_nodes == sum(1 for _ in fleet)
        assert len(messages.of(outcome)) <= messages.LONGEST
        if outcome.remedy is None:
            seen["none"] += 1
            continue
        seen[outcome.remedy.kind] += 1
        mark = fleet.checkpoint()
        changed = remedies.apply(fleet, request, outcome.remedy)
        assert isinstance(group_decision.decide(fleet, Group.of(changed), policy), group_decision.Statement), (
            outcome.remedy,
            messages.of(outcome),
        )
        fleet.rollback(mark)
    assert seen


def _crowded(dice: random.Random) -> Fleet:
    fleet = Fleet(CATALOG)
    for number in range(dice.randint(1, 6)):
        gpus = [(dice.choice((A100, H100)), True)] * dice.randint(0, 2) + [(T4, False)] * dice.randint(0, 2)
        taints = [Taint(key="dedicated", value="x", effect="NoSchedule")] if dice.random() < 0.2 else []
        labels = {"disk": dice.choice(("ssd", "hdd")), names.ZONE_LABEL: dice.choice("ab")}
        facts = node_facts(
            f"node-{number}",
            cpu=dice.choice((2000, 8000)),
            labels=labels,
            taints=taints,
            unschedulable=dice.random() < 0.1,
        )
        add_node(fleet, facts, gpus, ready=dice.random() < 0.9)
    policy = Policy("first-fit")
    for number in range(60):
        group_decision.decide(fleet, Group.of(pod_request(f"early-{number}", **_wants(dice))), policy, explained=False)
    return fleet


def _wants(dice: random.Random) -> dict[str, object]:
    wants: dict[str, object] = {"cpu": dice.choice(("100m", "1", "3")), "labels": {"app": dice.choice("xy")}}
    match dice.randrange(5):
        case 0:
            wants["slices"] = {dice.choice(("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "1g.10gb", "7g.80gb")): 1}
        case 1:
            wants["slices"] = {"1g.5gb": dice.randint(1, 3), "2g.10gb": 1}
        case 2:
            wants["gpus"] = dice.randint(1, 3)
        case 3:
            wants["fraction"] = dice.choice(("0.3", "0.7", "0.9"))
        case _:
            pass
    if dice.random() < 0.3:
        wants["nodeSelector"] = {"disk": dice.choice(("ssd", "nvme"))}
    if dice.random() < 0.2:
        term = {"topologyKey": names.ZONE_LABEL, "labelSelector": {"matchLabels": {"app": dice.choice("xy")}}}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        wants["affinity"] = {dice.choice(("podAffinity", "podAntiAffinity")): rule}
    if dice.random() < 0.1:
        wants["priority"] = dice.choice((0, 100, 2_000_001_000))
    return wants


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        (("a/x",), "deleting pod a/x."),
        (("b/x",), "deleting 1 pod of another namespace."),
        (("b/x", "b/y"), "deleting 2 pods of another namespace."),
        (("b/x", "c/y"), "deleting 2 pods of other namespaces."),
        (("a/x", "b/y", "a/z"), "deleting pods a/x, a/z and 1 pod of another namespace."),
    ],
)
def test_x01_pods_of_other_namespaces_are_counted_and_not_named(pods: tuple[str, ...], said: str) -> None:
    change = Remedy("free", subject="1 x 1g.5gb", node=NodeName("n1"), pods=pods, count=len(pods))
    refusal = Refusal(PodUID("u"), "a/waits", (("1g.5gb", 1),), Code.NO_PLACE, total_nodes=1, remedy=change)
    assert messages.of(refusal).endswith(said)
    assert "b/" not in messages.of(refusal)
    assert "a/" not in messages.of(refusal, reader="elsewhere")
