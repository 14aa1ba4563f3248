"""Why a pod with a share waits: MiB that are free where, and a change that really admits it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from apportion.apis import names, shared_gpus
from apportion.core import group_decision
from apportion.core.catalog import Model
from apportion.core.explanations import empty_cluster, explanation, messages, quota_remedies, remedies
from apportion.core.fleet import Fleet, GpuFacts
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.queues.tree import Allowance, Queue, QueueTree
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from tests.builders.accelerators import A100, CATALOG, T4
from tests.builders.fleets import add_node, fleet_of, node_facts
from tests.builders.pods import pod_request

T4_MIB = 15360
GPU = names.NVIDIA_GPU
RESERVATIONS = names.RESERVATION_NAMESPACE


def refused(fleet: Fleet, **wants: object) -> Refusal:
    outcome = group_decision.decide(fleet, Group.of(pod_request(**wants)), Policy())
    assert isinstance(outcome, Refusal)
    return outcome


def group_of(**wants: object) -> Group:
    return Group.of(pod_request(**wants))


def run(fleet: Fleet, name: str, **wants: object) -> None:
    outcome = group_decision.decide(fleet, Group.of(pod_request(name, **wants)), Policy())
    assert isinstance(outcome, Statement)


def add_slots(fleet: Fleet, name: str, mib: int | None, *, gpus: int = 2, pods: int = 110) -> None:
    """A node without an agent; `mib` None if it does not say how much memory its GPUs have."""
    model = Model.from_discovery("Tesla-T4", mib or 1000, ())
    fleet.set_node(node_facts(name, **{GPU: gpus, "pods": pods}))
    slots = [GpuFacts(shared_gpus.slot(name, i), model, mig=False, measured=mib is not None) for i in range(gpus)]
    fleet.set_gpus(name, slots, ready=False)


def test_x01_a_share_is_told_what_it_needs_and_the_most_that_is_free_on_one_gpu() -> None:
    fleet = fleet_of((node_facts("n1"), [(T4, False)] * 2), (node_facts("n2"), [(T4, False)]))
    run(fleet, "a", memory=15000, nodeSelector={names.HOSTNAME_LABEL: "n1"})
    run(fleet, "b", memory=14000, nodeSelector={names.HOSTNAME_LABEL: "n1"})
    run(fleet, "c", memory=14500, nodeSelector={names.HOSTNAME_LABEL: "n2"})
    refusal = refused(fleet, memory=2000)
    assert messages.of(refusal) == (
        "0/2 nodes are available for 1 x 2000 MiB of a GPU: 2 nodes have insufficient free memory on a single GPU "
        "(needs 2000 MiB; the most free on one GPU is 1360 of 15360 MiB). "
        "Cheapest change: request gpu-memory 1360 instead of 2000."
    )


def test_x01_a_fraction_is_told_by_the_memory_of_each_kind_of_gpu() -> None:
    fleet = fleet_of((node_facts("n1"), [(T4, False)]), (node_facts("n2"), [(A100, False)]))
    run(fleet, "a", fraction="0.6", nodeSelector={names.HOSTNAME_LABEL: "n1"})
    run(fleet, "b", fraction="0.6", nodeSelector={names.HOSTNAME_LABEL: "n2"})
    told = messages.of(refused(fleet, fraction="0.5"))
    assert "(needs 7680 MiB; the most free on one GPU is 6144 of 15360 MiB)" in told
    assert "(needs 20480 MiB; the most free on one GPU is 16384 of 40960 MiB)" in told
    assert told.endswith("request gpu-fraction 0.4 instead of 0.5.")


def test_x01_shares_of_several_gpus_are_told_how_many_can_take_them() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 3))
    run(fleet, "a", fraction="0.995", devices=2)
    refusal = refused(fleet, memory=2000, devices=2)
    assert refusal.code is Code.NO_MEMORY_ON_SEVERAL
    told = messages.of(refusal)
    assert "1 node has too few GPUs with 2000 MiB of a GPU free (needs 2; on one node 1 of 3 can take it)" in told
    assert told.endswith("request gpu-memory 77 instead of 2000.")
    told = messages.of(refused(fleet, fraction="0.5", devices=2))
    assert told.endswith("request gpu-fraction-num-devices 1 instead of 2.")


def test_x01_memory_that_is_free_but_cannot_be_reserved_is_told() -> None:
    fleet = Fleet(CATALOG)
    add_slots(fleet, "n", 16000, pods=1)
    assert refused(fleet, memory=2000).code is Code.NO_RESERVATION
    fleet = Fleet(CATALOG)
    add_slots(fleet, "n", 16000)
    fleet.set_node(replace(fleet.nodes["n"].facts, allocatable={**fleet.nodes["n"].facts.allocatable, GPU: 0}))
    assert "has insufficient nvidia.com/gpu (needs 1, 0 of 0 in use)" in messages.of(refused(fleet, memory=2000))


def test_x01_g10_nodes_that_hide_their_memory_and_nodes_without_gpus_are_told_apart() -> None:
    fleet = Fleet(CATALOG)
    add_slots(fleet, "hidden", None)
    add_node(fleet, node_facts("plain"))
    told = messages.of(refused(fleet, memory=2000))
    assert f"1 node has no label {names.GPU_MEMORY_LABEL}, so that only fractions of the GPUs can be requested" in told
    assert "1 node has no GPU that can be shared" in told
    run(fleet, "a", fraction="0.7", devices=2)
    assert "1 node has no GPU with a free fraction of 0.5 GPU" in messages.of(refused(fleet, fraction="0.5"))


def test_x01_g01_a_share_in_a_cluster_without_sharing_is_told_how_to_enable_it() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    fleet.sharing = False
    told = messages.of(refused(fleet, fraction="0.5"))
    assert "GPU sharing is not enabled" in told
    assert "spec.admission.gpuSharing: true in the Config kai-config" in told


def test_x01_g05_the_reservation_pod_goes_with_the_last_pod_and_is_not_to_be_deleted() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    run(fleet, "a", fraction="0.5")
    run(fleet, "b", fraction="0.5", namespace="other")
    reserve(fleet, "n-gpu0")
    refusal = refused(fleet, gpus=1)
    assert refusal.remedy is not None
    assert sorted(refusal.remedy.pods) == ["default/a", "other/b"]
    told = messages.of(refusal)
    assert told.endswith("by deleting pod default/a and 1 pod of another namespace.")
    assert "other/" not in told
    assert RESERVATIONS not in told


def test_x01_a_gpu_that_takes_no_more_shares_now_does_not_mean_never() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    closed, other = (gpu.facts for gpu in fleet.nodes["n"].gpus.values())
    fleet.set_gpus("n", [replace(closed, takes_shares=False), other], ready=True)
    refusal = refused(fleet, fraction="0.5", devices=2)
    assert "on one node 1 of 2 can take it" in messages.of(refusal)
    assert (
        explanation.worked_out(empty_cluster.can_never(fleet, group_of(fraction="0.5", devices=2), only_room=True))
        == ""
    )


def test_x01_g12_no_node_is_proposed_like_one_that_takes_no_shares() -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)]))
    (gpu,) = fleet.nodes["n"].gpus.values()
    fleet.set_gpus("n", [replace(gpu.facts, takes_shares=False)], ready=True)
    refusal = refused(fleet, fraction="0.5")
    assert "1 node has no GPU that takes shares" in messages.of(refusal)
    assert refusal.remedy is None


@pytest.mark.parametrize(
    ("wants", "instead"),
    [
        ({"fraction": "0.8"}, "request gpu-fraction 0.5 instead of 0.8"),
        ({"fraction": "0.4", "devices": 2}, "request gpu-fraction 0.25 instead of 0.4"),
        ({"memory": 9000}, "request gpu-memory 7680 instead of 9000"),
        ({"memory": 4000, "devices": 2}, "request gpu-memory 3840 instead of 4000"),
    ],
)
def test_x01_a_share_that_its_queue_does_not_allow_is_told_what_it_may_have(
    wants: dict[str, object], instead: str
) -> None:
    fleet = fleet_of((node_facts("n"), [(T4, False)] * 2))
    fleet.accounts.set_tree(QueueTree([Queue(names.DEFAULT_QUEUE, gpu=Allowance(500, 500))]))
    request = pod_request("late", **wants)
    remedy = explanation.worked_out(quota_remedies.smaller(fleet, request, Policy()))
    assert remedy is not None
    assert messages.remedy(remedy, "default") == instead
    changed = remedies.apply(fleet, request, remedy)
    assert not quota_remedies.passing(fleet, Group.of(changed))
    assert isinstance(group_decision.decide(fleet, Group.of(changed), Policy()), Statement)


@pytest.mark.parametrize("seed", range(60))
def test_x01_applying_the_cheapest_change_admits_a_share(seed: int) -> None:
    dice = random.Random(seed)
    fleet, policy = _crowded(dice), Policy(dice.choice(("fragmentation", "pack", "first-fit")))
    seen: Counter[str] = Counter()
    for number in range(25):
        request = pod_request(f"late-{number}", **_wants(dice))
        before = fleet.record()
        outcome = group_decision.decide(fleet, Group.of(request), policy)
        if isinstance(outcome, Statement):
            outcome.undo(fleet)
            continue
        assert fleet.record() == before, "explaining changes nothing"
        _check_numbers(outcome)
        if outcome.remedy is None:
            seen["none"] += 1
            continue
        seen[outcome.remedy.kind] += 1
        mark = fleet.checkpoint()
        changed = remedies.apply(fleet, request, outcome.remedy)
        assert isinstance(group_decision.decide(fleet, Group.of(changed), policy), Statement), messages.of(outcome)
        fleet.rollback(mark)
        assert fleet.record() == before
    assert seen


def _check_numbers(refusal: Refusal) -> None:
    assert sum(len(group.nodes) for group in refusal.groups) == refusal.total_nodes
    assert len(messages.of(refusal)) <= messages.LONGEST
    for group in refusal.groups:
        if group.code in {Code.NO_MEMORY, Code.NO_MEMORY_ON_SEVERAL}:
            assert group.free < group.need, messages.of(refusal)
            assert group.free <= group.total


def reserve(fleet: Fleet, gpu: str) -> None:
    """The reservation pod of a shared GPU runs."""
    node = fleet.gpu_nodes[gpu]
    pod = pod_request(f"holds-{gpu.replace('/', '-')}", namespace=RESERVATIONS, gpus=1)
    fleet.add_pod(pod, node)
    fleet.set_devices(node, {**fleet.nodes[node].wholes, pod.uid: (gpu,)})


def _crowded(dice: random.Random) -> Fleet:
    fleet = Fleet(CATALOG)
    for number in range(dice.randint(1, 5)):
        name = f"node-{number}"
        match dice.randrange(3):
            case 0:
                add_slots(fleet, name, dice.choice((16000, 24000)), gpus=dice.randint(1, 3), pods=dice.choice((4, 110)))
            case 1:
                add_slots(fleet, name, None, gpus=dice.randint(1, 3))
            case _:
                gpus = [(dice.choice((A100, T4)), False) for _ in range(dice.randint(1, 3))]
                add_node(fleet, node_facts(name, pods=dice.choice((3, 110))), [*gpus, (A100, True)])
    policy = Policy("first-fit")
    for number in range(30):
        group_decision.decide(fleet, Group.of(pod_request(f"early-{number}", **_wants(dice))), policy, explained=False)
    for gpu, node in list(fleet.gpu_nodes.items()):
        if fleet.nodes[node].gpus[gpu].shares and dice.random() < 0.7:
            reserve(fleet, gpu)
    for node in list(fleet):
        facts = [replace(gpu.facts, takes_shares=dice.random() < 0.9) for gpu in node.gpus.values()]
        fleet.set_gpus(node.name, facts, ready=node.ready)
    return fleet


def _wants(dice: random.Random) -> dict[str, object]:
    wants: dict[str, object] = {"namespace": dice.choice(("default", "other"))}
    match dice.randrange(4):
        case 0:
            wants["gpus"] = dice.randint(1, 2)
        case 1:
            wants["memory"] = dice.choice((500, 4000, 9000, 15999, 60000))
        case _:
            wants["fraction"] = dice.choice(("0.1", "0.3", "0.5", "0.7", "0.999"))
    if "gpus" not in wants and dice.random() < 0.4:
        wants["devices"] = dice.randint(2, 3)
    return wants
