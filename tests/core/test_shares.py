"""Shares of GPUs: never more than a GPU has, whatever the GPUs and the order; charged and rounded as G04 says."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.request import POLICIES, Request
from apportion.core import gpu_usage, group_decision
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts
from apportion.core.groups import Group
from apportion.core.node import NodeState
from apportion.core.operations import BindShare
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.statement import Statement
from tests.builders.accelerators import A100, CATALOG, H100, T4, model
from tests.builders.fleets import add_node, fleet_of, node_facts
from tests.builders.pods import pod_request

PRODUCTS = (T4, A100, H100)


def random_fleet(dice: random.Random) -> Fleet:
    """Different models on a node, some GPUs of unknown memory, some that take no shares, few places for pods."""
    fleet = Fleet(CATALOG)
    for number in range(3):
        name = NodeName(f"n{number}")
        gpus = [
            GpuFacts(
                DeviceUUID(f"{name}-{index}"),
                model(dice.choice(PRODUCTS)),
                mig=False,
                healthy=dice.random() < 0.9,
                measured=dice.random() < 0.8,
                takes_shares=dice.random() < 0.9,
            )
            for index in range(dice.randint(0, 4))
        ]
        allocatable = {"cpu": 64_000, "pods": dice.choice((1, 2, 3, 4, 110)), names.NVIDIA_GPU: len(gpus)}
        fleet.set_node(NodeFacts(name, allocatable=allocatable))
        fleet.set_gpus(name, gpus, ready=True)
    return fleet


def random_request(dice: random.Random, number: int) -> Request:
    ask: dict[str, object] = {"gpus": dice.choice((1, 2))}
    if dice.random() < 0.85:
        devices = dice.choice((1, 1, 2, 3))
        share = {"fraction": f"0.{dice.randint(10, 999):03}"} if dice.random() < 0.5 else {"memory": dice.choice(MIB)}
        ask = {**share, "devices": devices}
    return pod_request(f"p{number}", **ask)


MIB = (1, 333, 4000, 15360, 40960, 90000)


def placed(fleet: Fleet, requests: Iterable[Request], policy: Policy, *, plain: bool = False) -> list[Statement]:
    groups = (Group.of(each) for each in requests)
    outcomes = [group_decision.decide(fleet, group, policy, explained=False, plain=plain) for group in groups]
    return [each for each in outcomes if isinstance(each, Statement)]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), policy=st.sampled_from(POLICIES))
def test_g04_shares_never_exceed_a_gpu_and_are_rounded_down(seed: int, policy: str) -> None:
    dice = random.Random(seed)
    fleet = random_fleet(dice)
    requests = [random_request(dice, number) for number in range(20)]
    for statement in placed(fleet, requests, Policy(policy)):
        (bind,) = statement.binds
        if isinstance(bind, BindShare):
            rounded_down(fleet, bind)
    for node in fleet:
        sound(node)


def rounded_down(fleet: Fleet, bind: BindShare) -> None:
    share = bind.request.share
    assert share is not None
    assert len({gpu for gpu, _ in bind.shares}) == share.devices
    charged = 0
    for uuid, mib in bind.shares:
        gpu = fleet.nodes[bind.node].gpus[uuid]
        assert gpu.facts.takes_shares
        assert gpu.facts.healthy
        if share.memory_mib is not None:
            assert gpu.facts.measured
            assert mib == share.memory_mib
        else:
            assert share.milli is not None
            assert mib * 1000 <= share.milli * gpu.memory_mib < (mib + 1) * 1000
        charged += -(-mib * 1000 // gpu.memory_mib)
    assert gpu_usage.held(fleet, bind.request) == charged


def sound(node: NodeState) -> None:
    """The pods, and one reservation pod for each GPU that is shared, have their places and devices."""
    assert node.facts is not None
    shared = [gpu for gpu in node.gpus.values() if gpu.shares]
    whole = sum(request.whole_gpus for request in node.pods.values())
    for gpu in node.gpus.values():
        assert sum(gpu.shares.values()) == gpu.shared_mib <= gpu.memory_mib
        assert not gpu.shares or gpu.whole is None
    assert len(node.pods) + len(shared) <= node.facts.allocatable["pods"] or not node.pods
    assert whole + len(shared) <= node.facts.allocatable[names.NVIDIA_GPU]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_g04_which_shares_come_first_makes_no_difference_to_the_fleet(seed: int) -> None:
    dice = random.Random(seed)
    fleet, other = random_fleet(random.Random(seed)), random_fleet(random.Random(seed))
    binds = [
        bind for each in placed(fleet, [random_request(dice, n) for n in range(12)], Policy()) for bind in each.binds
    ]
    shares = [bind for bind in binds if isinstance(bind, BindShare)]
    for bind in binds:
        if not isinstance(bind, BindShare):
            bind.undo(fleet)
    dice.shuffle(shares)
    for bind in shares:
        bind.apply(other)
    assert other.record() == fleet.record()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_g11_shares_are_undone_in_any_order_to_the_byte(seed: int) -> None:
    """Beside reservation pods that come and go."""
    dice = random.Random(seed)
    fleet = random_fleet(dice)
    before = fleet.record()
    binds = [
        bind for each in placed(fleet, [random_request(dice, n) for n in range(12)], Policy()) for bind in each.binds
    ]
    for number, bind in enumerate(bind for bind in binds if isinstance(bind, BindShare)):
        held = reservation(f"r{number}", bind.groups[0])
        fleet.add_pod(held, bind.node)
        fleet.set_devices(bind.node, {held.uid: (bind.shares[0][0],)} if dice.random() < 0.6 else {})
    dice.shuffle(binds)
    for bind in binds:
        bind.undo(fleet)
    for number in range(len(binds)):
        fleet.remove_pod(PodUID(f"uid-{fleet.reservation_namespace}-r{number}"))
    assert fleet.record() == before


def reservation(name: str, group: str) -> Request:
    labels = {names.GPU_GROUP_LABEL: group}
    namespace = Fleet(CATALOG).reservation_namespace
    return pod_request(name, namespace=namespace, gpus=1, labels=labels, scheduler=names.DEFAULT_SCHEDULER)


def test_g05_a_newly_shared_gpu_needs_a_place_for_its_reservation_pod() -> None:
    fleet = fleet_of((node_facts("n", pods=2), [(T4, False)] * 2))
    policy = Policy()
    assert len(placed(fleet, [pod_request("a", fraction="0.4")], policy)) == 1
    refused = group_decision.decide(fleet, Group.of(pod_request("b", fraction="0.4")), policy)
    assert isinstance(refused, group_decision.Refusal), "its pod and the reservation pod are all that the node takes"
    add_node(fleet, node_facts("n", pods=3), [(T4, False)] * 2)
    assert not placed(fleet, [pod_request("c", fraction="0.7")], policy), "it would need a second reservation pod"
    assert len(placed(fleet, [pod_request("b", fraction="0.4")], policy)) == 1
    add_node(fleet, node_facts("n", pods=5), [(T4, False)] * 2)
    assert len(placed(fleet, [pod_request("c", fraction="0.7")], policy)) == 1


def test_g05_no_device_is_given_whole_that_a_reservation_pod_will_need() -> None:
    """One GPU is still held for pods that have gone; another is shared, and its reservation pod has still to come."""
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 3))
    lingering = reservation("old", "old")
    fleet.add_pod(lingering, "n")
    fleet.set_devices("n", {lingering.uid: ("n-gpu2",)})
    assert len(placed(fleet, [pod_request("a", fraction="0.5")], Policy())) == 1
    node = fleet.nodes["n"]
    assert node.free(names.NVIDIA_GPU) == 1
    assert node.free("pods") == 110 - 2 - 1
    assert len(placed(fleet, [pod_request("w", gpus=1)], Policy())) == 1
    assert node.free(names.NVIDIA_GPU) == 0
    fleet.remove_pod(lingering.uid)
    assert node.free(names.NVIDIA_GPU) == 1


def test_g05_a_gpu_with_a_share_of_unknown_size_takes_nothing() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    fleet.add_share("x/0", "n-gpu0", 0, "x", "g", "n")
    for ask in ({"fraction": "0.1"}, {"memory": 1}, {"gpus": 1}):
        for plain in (True, False):
            outcome = group_decision.decide(fleet, Group.of(pod_request("p", **ask)), Policy(), plain=plain)
            assert isinstance(outcome, group_decision.Refusal), (ask, plain)
    fleet.remove_share("x/0")
    assert len(placed(fleet, [pod_request("p", fraction="0.1")], Policy())) == 1


def test_t04_a_pod_has_no_share_of_a_gpu_on_another_node() -> None:
    fleet = fleet_of((node_facts("a"), [(T4, False)]), (node_facts("b"), [(T4, False)]))
    fleet.add_share("x/0", "a-gpu0", 5000, "x", "g", "b")
    assert not fleet.nodes["a"].gpus["a-gpu0"].shares
    fleet.add_share("x/0", "a-gpu0", 5000, "x", "g", "a")
    assert fleet.nodes["a"].gpus["a-gpu0"].shares == {"x/0": 5000}


def test_g05_two_reservation_pods_that_name_one_gpu_hold_it_until_both_are_gone() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    pods = [reservation(name, "g") for name in ("r1", "r2")]
    for pod in pods:
        fleet.add_pod(pod, "n")
    fleet.set_devices("n", {pod.uid: ("n-gpu0",) for pod in pods})
    for gone, other in (pods, pods[::-1]):
        mark = fleet.checkpoint()
        before = fleet.record()
        fleet.remove_pod(gone.uid)
        assert fleet.nodes["n"].gpus["n-gpu0"].reservation == other.uid
        fleet.rollback(mark)
        assert fleet.record() == before


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_g05_nodes_to_which_a_pod_could_not_be_bound_come_last(policy: str, *, plain: bool) -> None:
    """And among these the one first that failed longest ago."""
    names_ = [NodeName(f"n{number}") for number in range(3)]
    fleet = fleet_of(*((node_facts(name), [(T4, False)]) for name in names_))
    request = pod_request("p", fraction="0.5")

    def chosen(*failed: NodeName) -> NodeName:
        fleet.failed_nodes[request.uid] = failed
        mark = fleet.checkpoint()
        (statement,) = placed(fleet, [request], Policy(policy), plain=plain)
        fleet.rollback(mark)
        return statement.binds[0].node

    first = chosen()
    second = chosen(first)
    third = chosen(first, second)
    assert {first, second, third} == set(names_)
    for failed in ((first, second, third), (third, first, second), (third, NodeName("gone"), first, second)):
        assert chosen(*failed) == failed[0]
    del fleet.failed_nodes[request.uid]
    fleet.failed_nodes[PodUID("another")] = (first,)
    (statement,) = placed(fleet, [request], Policy(policy), plain=plain)
    assert statement.binds[0].node == first, "what happened to another pod does not matter to this one"


def test_g04_a_memory_share_is_charged_by_the_smallest_gpu_while_pending_and_by_its_own_when_placed() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False), (A100, False), (H100, False)]))
    t4, a100 = model(T4).memory_mib, model(A100).memory_mib
    small, large = pod_request("small", memory=1000), pod_request("large", memory=t4 + 1)
    assert gpu_usage.wanted(fleet, small) == -(-1000 * 1000 // t4)
    assert gpu_usage.wanted(fleet, large) == -(-(t4 + 1) * 1000 // a100)
    assert gpu_usage.wanted(fleet, pod_request("huge", memory=10**6)) is None
    for number, uuid in enumerate(("n-gpu1", "n-gpu2")):
        request = pod_request(f"p{number}", memory=1000)
        bind = BindShare(request, "n", ((uuid, 1000),), ("g",))
        bind.apply(fleet)
        memory = fleet.nodes["n"].gpus[uuid].memory_mib
        assert gpu_usage.held(fleet, request) == -(-1000 * 1000 // memory)


@pytest.mark.parametrize("plain", [True, False])
def test_g10_a_node_of_unknown_memory_takes_fractions_only(*, plain: bool) -> None:
    fleet = fleet_of((node_facts("n", **{names.NVIDIA_GPU: 1}), []))
    fleet.set_gpus("n", [GpuFacts("n/0", model(T4), mig=False, measured=False)], ready=False)
    refused = group_decision.decide(fleet, Group.of(pod_request("m", memory=1)), Policy(), plain=plain)
    assert isinstance(refused, group_decision.Refusal)
    assert {group.code for group in refused.groups} == {Code.MEMORY_UNKNOWN}
    assert isinstance(
        group_decision.decide(fleet, Group.of(pod_request("f", fraction="0.5")), Policy(), plain=plain), Statement
    )
