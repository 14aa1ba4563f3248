"""Nodes and places are ranked by policy, the same way every time."""

from __future__ import annotations

import pytest

from apportion.apis import names
from apportion.apis.errors import RequestError
from apportion.core import cycle, potential
from apportion.core.facts import SlicePlacement
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.mix import Mix
from apportion.core.operations import Bind, BindShare
from apportion.core.policies import Policy
from tests.core.making import A100, T4, fleet_of, mig_fleet, model, node, pod


def placed(fleet: Fleet, policy: Policy, **wants: object) -> cycle.Statement:
    outcome = cycle.decide(fleet, Group.of(pod(**wants)), policy)
    assert isinstance(outcome, cycle.Statement)
    return outcome


def node_of(plan: cycle.Statement) -> str:
    (bind,) = plan.binds
    return bind.node


def gpus(count: int, nodes: int = 2, cpu: int = 64_000) -> Fleet:
    return fleet_of(*((node(f"node-{n}", cpu=cpu), [(T4, False)] * count) for n in range(nodes)))


@pytest.mark.parametrize(("policy", "second"), [("pack", "node-0"), ("spread", "node-1"), ("first-fit", "node-0")])
def test_s05_slices_follow_the_policy(policy: str, second: str) -> None:
    fleet, rule = mig_fleet(2, gpus=2), Policy(policy)
    assert node_of(placed(fleet, rule, slices={"1g.5gb": 1})) == "node-0"
    assert node_of(placed(fleet, rule, slices={"1g.5gb": 1})) == second


@pytest.mark.parametrize(("policy", "second"), [("pack", "node-0"), ("spread", "node-1"), ("best-fit", "node-0")])
@pytest.mark.parametrize("wants", [{"gpus": 1}, {"fraction": "0.4"}, {"gpus": 2}], ids=str)
def test_s05_shares_and_whole_gpus_follow_the_same_policy(policy: str, second: str, wants: dict[str, object]) -> None:
    fleet, rule = gpus(4), Policy(policy)
    assert node_of(placed(fleet, rule, **wants)) == "node-0"
    assert node_of(placed(fleet, rule, **wants)) == second


def test_s05_a_pod_may_ask_for_its_own_policy() -> None:
    fleet, rule = mig_fleet(2), Policy("pack")
    placed(fleet, rule, slices={"1g.5gb": 1})
    plan = placed(fleet, rule, slices={"1g.5gb": 1}, annotations={names.POLICY: "spread"})
    assert node_of(plan) == "node-1"


def test_s05_an_unknown_policy_is_refused() -> None:
    with pytest.raises(RequestError, match="must be one of"):
        Policy.named("random")


def test_s05_fragmentation_keeps_the_places_that_large_slices_need() -> None:
    """A 4g fits at one place only, so small ones go elsewhere as long as they can."""
    fleet = mig_fleet(1)
    for _ in range(3):
        placed(fleet, Policy(), slices={"1g.5gb": 1})
    placed(fleet, Policy(), slices={"4g.20gb": 1})


def test_s05_fragmentation_fills_a_used_gpu_before_it_opens_another() -> None:
    fleet = mig_fleet(3)
    nodes = {node_of(placed(fleet, Policy(), slices={"2g.10gb": 1})) for _ in range(3)}
    assert len(nodes) == 1


def test_s05_fragmentation_of_shares_matches_what_is_usually_asked_for() -> None:
    """With halves and quarters about, a quarter joins the half that leaves a quarter, not the empty GPU."""
    usual = [pod(fraction="0.5"), pod(fraction="0.25"), pod(fraction="0.25"), pod(gpus=1)]
    rule = Policy("fragmentation", Mix.of(usual))
    fleet = gpus(2, nodes=1)
    first = placed(fleet, rule, fraction="0.5").binds[0]
    second = placed(fleet, rule, fraction="0.25").binds[0]
    assert isinstance(first, BindShare)
    assert isinstance(second, BindShare)
    assert first.shares[0][0] == second.shares[0][0]
    whole = placed(fleet, rule, gpus=1).binds[0]
    assert isinstance(whole, Bind)


def test_s05_scarce_products_are_left_to_those_who_insist_on_them() -> None:
    product = names.GPU_PRODUCT_LABEL
    fleet = fleet_of(
        (node("a", labels={product: "rare"}), [(T4, False)] * 4),
        (node("b", labels={product: "common"}), [(T4, False)] * 4),
    )
    usual = [pod(gpus=1, nodeSelector={product: "rare"}), pod(gpus=1)]
    assert node_of(placed(fleet, Policy("fragmentation", Mix.of(usual)), gpus=1)) == "b"


def test_s05_preferred_rules_decide_before_the_policy() -> None:
    fleet = fleet_of((node("a"), [(A100, True)]), (node("b", labels={"disk": "ssd"}), [(A100, True)]))
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    wish = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}}
    for rule in (Policy(), Policy("first-fit")):
        assert node_of(placed(fleet, rule, slices={"1g.5gb": 1}, affinity=wish)) == "b"


def test_g04_a_fraction_is_of_the_chosen_devices_memory() -> None:
    plan = placed(gpus(1, nodes=1), Policy(), fraction="0.333")
    (bind,) = plan.binds
    assert isinstance(bind, BindShare)
    assert bind.shares == (("node-0-gpu0", 333 * 15360 // 1000),)


def test_g04_several_devices_are_several_gpus() -> None:
    fleet = gpus(3, nodes=1)
    plan = placed(fleet, Policy(), fraction="0.6", devices=2)
    (bind,) = plan.binds
    assert isinstance(bind, BindShare)
    assert len({gpu for gpu, _ in bind.shares}) == 2
    assert isinstance(cycle.decide(fleet, Group.of(pod(fraction="0.6", devices=2)), Policy()), cycle.Refusal)


def test_a_group_is_placed_whole_or_not_at_all() -> None:
    fleet = mig_fleet(1)
    before = fleet.record()
    group = [pod(slices={"3g.20gb": 1}) for _ in range(3)]
    assert isinstance(cycle.decide(fleet, Group.of(*group), Policy()), cycle.Refusal)
    assert fleet.record() == before
    assert isinstance(cycle.decide(fleet, Group.of(*group[:2]), Policy()), cycle.Statement)


def test_s06_a_pod_with_claims_goes_where_they_are() -> None:
    fleet = mig_fleet(2)
    request = pod("again", slices={"1g.5gb": 2})
    fleet.add_slice(f"{request.uid}-main-0", SlicePlacement("node-1-gpu0", "1g.5gb", 3, 1), request.uid)
    plan = cycle.decide(fleet, Group.of(request), Policy())
    assert isinstance(plan, cycle.Statement)
    assert [claim.name for claim in plan.claims] == [f"{request.uid}-main-1"]
    assert node_of(plan) == "node-1"


def test_s06_leftover_claims_must_go_first() -> None:
    fleet = mig_fleet(1)
    request = pod("again", slices={"1g.5gb": 1})
    fleet.add_slice(f"{request.uid}-main-0", SlicePlacement("node-0-gpu0", "2g.10gb", 0, 2), request.uid)
    refused = cycle.decide(fleet, Group.of(request), Policy())
    assert isinstance(refused, cycle.Refusal)
    assert refused.code == "ClaimsGivenUp"


def test_the_mix_is_learned_once_per_pod_and_fades() -> None:
    mix = Mix()
    request = pod(fraction="0.5")
    for _ in range(3):
        mix.observe(request)
    assert sum(mix.weights.values()) == mix.total == 1 << 10
    for number in range(9000):
        mix.observe(pod(f"whole-{number}", gpus=1))
    assert mix.total < 8192 << 10
    assert mix.generation > 10


def test_potential_prefers_places_that_leave_more() -> None:
    gpu = mig_fleet(1).nodes["node-0"].gpus["node-0-gpu0"]
    cut, shape = gpu.grid, gpu.grid.shape("1g.5gb")
    assert shape is not None
    worths = {start: potential.worth(cut, cut.put(0, shape, start)) for start in shape.starts}
    assert max(worths, key=lambda start: (worths[start], start)) == 6
    assert all(worth < potential.worth(cut, 0) for worth in worths.values())
    assert model(A100).units == 8
