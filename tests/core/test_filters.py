"""Node rules that the recorded kube-scheduler cases do not reach: volumes, agents, GPUs."""

from __future__ import annotations

from apportion.apis.selectors import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from apportion.core import filters
from apportion.core.fleet import Fleet
from apportion.core.reasons import Code
from apportion.core.volumes import ClaimFacts, ClassFacts, Storage, VolumeFacts
from tests.core.making import A100, CATALOG, H100, T4, add_node, fleet_of, node, pod

ZONE = "topology.kubernetes.io/zone"


def in_zone(*zones: str) -> NodeSelector:
    term = NodeSelectorTerm(match_expressions=(Requirement(key=ZONE, operator="In", values=zones),))
    return NodeSelector(node_selector_terms=(term,))


def zoned(storage: Storage) -> Fleet:
    fleet = fleet_of(*((node(f"node-{zone}", labels={ZONE: zone}), []) for zone in "abc"))
    fleet.storage = storage
    return fleet


def with_claims(*claims: str) -> dict[str, object]:
    return {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def nodes_for(fleet: Fleet, **wants: object) -> tuple[str, ...]:
    return filters.feasible(fleet, pod(**wants)).nodes


def codes(fleet: Fleet, **wants: object) -> set[Code]:
    return {reason.code for reason in filters.feasible(fleet, pod(**wants)).reasons.values()}


def test_s04_a_bound_volume_pins_the_pod_to_its_nodes() -> None:
    storage = Storage(
        claims={"default/data": ClaimFacts(volume="pv")}, volumes={"pv": VolumeFacts(node_affinity=in_zone("b", "c"))}
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-b", "node-c")


def test_s04_a_zone_label_on_the_volume_does_the_same() -> None:
    storage = Storage(
        claims={"default/data": ClaimFacts(volume="pv")}, volumes={"pv": VolumeFacts(labels={ZONE: "a__c"})}
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-a", "node-c")


def test_s04_a_claim_that_waits_for_its_pod_needs_a_volume_for_the_node() -> None:
    storage = Storage(
        claims={"default/data": ClaimFacts(storage_class="local", size=10, access_modes=("ReadWriteOnce",))},
        volumes={
            "small": VolumeFacts(in_zone("a"), storage_class="local", size=5, access_modes=("ReadWriteOnce",)),
            "right": VolumeFacts(in_zone("b"), storage_class="local", size=10, access_modes=("ReadWriteOnce",)),
            "taken": VolumeFacts(in_zone("c"), storage_class="local", size=10, claim="other/claim"),
        },
        classes={"local": ClassFacts(waits_for_pod=True)},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-b",)


def test_s04_a_provisioner_serves_the_topologies_it_may() -> None:
    topologies = in_zone("a").node_selector_terms
    storage = Storage(
        claims={"default/data": ClaimFacts(storage_class="cloud")},
        classes={"cloud": ClassFacts("csi.example.com", waits_for_pod=True, allowed_topologies=topologies)},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-a",)


def test_s04_two_claims_do_not_share_one_volume() -> None:
    claim = ClaimFacts(storage_class="local", size=1)
    storage = Storage(
        claims={"default/one": claim, "default/two": claim},
        volumes={
            "a": VolumeFacts(in_zone("a"), storage_class="local", size=1),
            "b1": VolumeFacts(in_zone("b"), storage_class="local", size=1),
            "b2": VolumeFacts(in_zone("b"), storage_class="local", size=1),
        },
        classes={"local": ClassFacts(waits_for_pod=True)},
    )
    assert nodes_for(zoned(storage), **with_claims("one", "two")) == ("node-b",)


def test_s04_a_missing_unbound_or_exclusive_claim_rules_out_every_node() -> None:
    storage = Storage(
        claims={
            "default/immediate": ClaimFacts(storage_class="fast"),
            "default/going": ClaimFacts(volume="pv", deleting=True),
            "default/alone": ClaimFacts(volume="pv", access_modes=("ReadWriteOncePod",)),
        },
        volumes={"pv": VolumeFacts()},
        classes={"fast": ClassFacts("csi.example.com")},
    )
    fleet = zoned(storage)
    for name in ("missing", "immediate", "going"):
        assert codes(fleet, **with_claims(name)) == {Code.VOLUME_CLAIM}
    assert len(nodes_for(fleet, **with_claims("alone"))) == 3
    fleet.add_pod(pod("first", **with_claims("alone")), "node-a")
    assert codes(fleet, **with_claims("alone")) == {Code.VOLUME_BUSY}


def test_s04_a_fleet_that_knows_no_storage_does_not_judge_by_it() -> None:
    fleet = zoned(Storage())
    fleet.storage = None
    assert len(nodes_for(fleet, **with_claims("data"))) == 3


def test_s04_a_selector_on_the_claim_narrows_the_volumes() -> None:
    storage = Storage(
        claims={
            "default/data": ClaimFacts(storage_class="local", selector=LabelSelector(match_labels={"tier": "gold"}))
        },
        volumes={
            "a": VolumeFacts(in_zone("a"), storage_class="local", labels={"tier": "gold"}),
            "b": VolumeFacts(in_zone("b"), storage_class="local"),
        },
        classes={"local": ClassFacts(waits_for_pod=True)},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-a",)


def test_s04_slices_need_label_agent_profile_and_place() -> None:
    fleet = Fleet(CATALOG)
    add_node(fleet, node("a-plain", labels={"nvidia.com/mig.capable": "false"}), [(A100, True)])
    add_node(fleet, node("b-silent"), [(A100, True)], ready=False)
    add_node(fleet, node("c-other"), [(H100, True)])
    add_node(fleet, node("d-whole"), [(A100, False)])
    add_node(fleet, node("e-fits"), [(H100, True), (A100, True)])
    result = filters.feasible(fleet, pod(slices={"1g.5gb": 1}))
    assert result.nodes == ("e-fits",)
    assert {name: reason.code for name, reason in result.reasons.items()} == {
        "a-plain": Code.NOT_MIG_CAPABLE,
        "b-silent": Code.AGENT_NOT_READY,
        "c-other": Code.NO_PROFILE,
        "d-whole": Code.NO_PROFILE,
    }


def test_s04_slices_of_one_pod_may_lie_on_several_gpus_of_a_node() -> None:
    fleet = fleet_of((node("a"), [(A100, True)]), (node("b"), [(A100, True), (H100, True)]))
    assert nodes_for(fleet, slices={"4g.20gb": 1, "4g.40gb": 1}) == ("b",)
    assert nodes_for(fleet, slices={"3g.20gb": 2}) == ("a", "b")


def test_s04_the_kubelet_must_have_the_devices_too() -> None:
    fleet = fleet_of((node("n"), [(A100, True)]))
    state = fleet.nodes["n"]
    assert state.facts is not None
    fleet.set_node(node("n"))
    assert codes(fleet, slices={"1g.5gb": 1}) == {Code.RESOURCE}


def test_g04_a_share_needs_one_gpu_with_that_much_left() -> None:
    fleet = fleet_of((node("n"), [(T4, False)] * 2))
    for number in range(2):
        fleet.add_share(f"share-{number}", f"n-gpu{number}", 8000, f"pod-{number}")
    assert codes(fleet, fraction="0.6") == {Code.NO_MEMORY}
    assert nodes_for(fleet, memory=7360) == ("n",)
    assert codes(fleet, memory=7361) == {Code.NO_MEMORY}


def test_nodes_without_reported_gpus_are_judged_by_their_kubelet() -> None:
    fleet = fleet_of((node("n", **{"nvidia.com/gpu": 2}), []))
    assert nodes_for(fleet, gpus=2) == ("n",)
    fleet.add_pod(pod("first", gpus=1), "n")
    assert codes(fleet, gpus=2) == {Code.RESOURCE}
