"""AllocationClaims as the scheduler writes them."""

from __future__ import annotations

import msgspec

from apportion.apis import names
from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.claims import AllocationClaim, PodReference
from apportion.apis.meta import to_wire

UID = "11111111-2222-3333-4444-555555555555"


def made() -> AllocationClaim:
    return claims.new_claim(
        name=claims.claim_name(UID, "main", 0),
        namespace="das-operator",
        profile="1g.5gb+me",
        gpu_uuid="GPU-1",
        start=0,
        size=1,
        nodename="n1",
        pod=PodReference(namespace="default", name="p", uid=UID),
        containers=["main", "init"],
    )


def test_s06_claims_are_named_after_pod_uid_container_and_index() -> None:
    assert claims.claim_name(UID, "main", 2) == f"{UID}-main-2"
    assert len(claims.claim_name(UID, "c" * 63, 15)) <= 253


def test_s06_every_field_of_the_rule_is_on_the_wire() -> None:
    wire = to_wire(made())
    assert wire.pop("status") == {}
    assert wire == {
        "metadata": {
            "name": f"{UID}-main-0",
            "namespace": "das-operator",
            "finalizers": [names.SLICE_FINALIZER],
        },
        "spec": {
            "profile": "1g.5gb+me",
            "gpuUUID": "GPU-1",
            "migPlacement": {"start": 0, "size": 1},
            "nodename": "n1",
            "podRef": {"kind": "Pod", "namespace": "default", "name": "p", "uid": UID},
            "containers": ["main", "init"],
        },
    }


def test_a_claim_survives_the_wire() -> None:
    claim = made()
    claim.status.state = claims.CREATED
    claim.status.conditions = [claims.state_condition(claims.CREATED, now="2026-01-01T00:00:00Z", generation=1)]
    assert msgspec.json.decode(msgspec.json.encode(claim), type=AllocationClaim) == claim


def test_s06_a_state_has_its_condition() -> None:
    condition = to_wire(claims.state_condition(claims.IN_USE, now="2026-01-01T00:00:00Z", generation=3))
    assert condition == {
        "type": "State",
        "status": "True",
        "reason": "inUse",
        "message": "Allocation is inUse",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 3,
    }
