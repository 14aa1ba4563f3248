"""Node rules that the recorded kube-scheduler cases do not reach: volumes."""

from __future__ import annotations

from apportion.apis.selectors import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from apportion.core import filters
from apportion.core.fleet import Fleet
from apportion.core.reasons import Code
from apportion.core.volumes import Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import pod_request

ZONE = "topology.kubernetes.io/zone"


def in_zone(*zones: str) -> NodeSelector:
    term = NodeSelectorTerm(match_expressions=(Requirement(key=ZONE, operator="In", values=zones),))
    return NodeSelector(node_selector_terms=(term,))


def zoned(storage: Storage) -> Fleet:
    fleet = fleet_of(*((node_facts(f"node-{zone}", labels={ZONE: zone}), []) for zone in "abc"))
    fleet.storage = storage
    return fleet


def with_claims(*claims: str) -> dict[str, object]:
    return {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def nodes_for(fleet: Fleet, **wants: object) -> tuple[str, ...]:
    return filters.feasible(fleet, pod_request(**wants)).nodes


def codes(fleet: Fleet, **wants: object) -> set[Code]:
    return {reason.code for reason in filters.feasible(fleet, pod_request(**wants)).reasons.values()}


def test_s04_a_bound_volume_pins_the_pod_to_its_nodes() -> None:
    storage = Storage(
        volume_claims={"default/data": VolumeClaimFacts(volume="pv")},
        volumes={"pv": VolumeFacts(node_affinity=in_zone("b", "c"))},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-b", "node-c")


def test_s04_a_zone_label_on_the_volume_does_the_same() -> None:
    storage = Storage(
        volume_claims={"default/data": VolumeClaimFacts(volume="pv")},
        volumes={"pv": VolumeFacts(labels={ZONE: "a__c"})},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-a", "node-c")


def test_s04_a_claim_that_waits_for_its_pod_needs_a_volume_for_the_node() -> None:
    storage = Storage(
        volume_claims={
            "default/data": VolumeClaimFacts(storage_class="local", size=10, access_modes=("ReadWriteOnce",))
        },
        volumes={
            "small": VolumeFacts(in_zone("a"), storage_class="local", size=5, access_modes=("ReadWriteOnce",)),
            "right": VolumeFacts(in_zone("b"), storage_class="local", size=10, access_modes=("ReadWriteOnce",)),
            "taken": VolumeFacts(in_zone("c"), storage_class="local", size=10, claim="other/claim"),
        },
        classes={"local": StorageClassFacts(waits_for_pod=True)},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-b",)


def test_s04_a_provisioner_serves_the_topologies_it_may() -> None:
    topologies = in_zone("a").node_selector_terms
    storage = Storage(
        volume_claims={"default/data": VolumeClaimFacts(storage_class="cloud")},
        classes={"cloud": StorageClassFacts("csi.example.com", waits_for_pod=True, allowed_topologies=topologies)},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-a",)


def test_s04_two_claims_do_not_share_one_volume() -> None:
    claim = VolumeClaimFacts(storage_class="local", size=1)
    storage = Storage(
        volume_claims={"default/one": claim, "default/two": claim},
        volumes={
            "a": VolumeFacts(in_zone("a"), storage_class="local", size=1),
            "b1": VolumeFacts(in_zone("b"), storage_class="local", size=1),
            "b2": VolumeFacts(in_zone("b"), storage_class="local", size=1),
        },
        classes={"local": StorageClassFacts(waits_for_pod=True)},
    )
    assert nodes_for(zoned(storage), **with_claims("one", "two")) == ("node-b",)


def test_s04_a_missing_unbound_or_exclusive_claim_rules_out_every_node() -> None:
    storage = Storage(
        volume_claims={
            "default/immediate": VolumeClaimFacts(storage_class="fast"),
            "default/going": VolumeClaimFacts(volume="pv", deleting=True),
            "default/alone": VolumeClaimFacts(volume="pv", access_modes=("ReadWriteOncePod",)),
        },
        volumes={"pv": VolumeFacts()},
        classes={"fast": StorageClassFacts("csi.example.com")},
    )
    fleet = zoned(storage)
    for name in ("missing", "immediate", "going"):
        assert codes(fleet, **with_claims(name)) == {Code.VOLUME_CLAIM}
    assert len(nodes_for(fleet, **with_claims("alone"))) == 3
    fleet.add_pod(pod_request("first", **with_claims("alone")), "node-a")
    assert codes(fleet, **with_claims("alone")) == {Code.VOLUME_BUSY}


def test_s04_a_fleet_that_knows_no_storage_does_not_judge_by_it() -> None:
    fleet = zoned(Storage())
    fleet.storage = None
    assert len(nodes_for(fleet, **with_claims("data"))) == 3


def test_s04_a_selector_on_the_claim_narrows_the_volumes() -> None:
    storage = Storage(
        volume_claims={
            "default/data": VolumeClaimFacts(
                storage_class="local", selector=LabelSelector(match_labels={"tier": "gold"})
            )
        },
        volumes={
            "a": VolumeFacts(in_zone("a"), storage_class="local", labels={"tier": "gold"}),
            "b": VolumeFacts(in_zone("b"), storage_class="local"),
        },
        classes={"local": StorageClassFacts(waits_for_pod=True)},
    )
    assert nodes_for(zoned(storage), **with_claims("data")) == ("node-a",)
