"""Claims of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.apis.custom_resources.claims import AllocationClaim, PodReference, claim_name, new_claim
from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.installation import Installation
from tests.builders.accelerators import A100, model

Json = dict[str, Any]


def claim(
    pod: Json,
    *,
    node: str,
    gpu: str,
    start: int,
    profile: str = "1g.5gb",
    size: int | None = None,
    containers: Sequence[str] = ("main",),
    owner: str = "",
    index: int = 0,
) -> AllocationClaim:
    """The claim of one slice of a pod; it is named after the container `owner`, the last that uses the slice."""
    meta = pod["metadata"]
    return new_claim(
        name=claim_name(meta["uid"], owner or containers[-1], index),
        namespace=Installation.namespace,
        profile=profile,
        gpu_uuid=DeviceUUID(gpu),
        start=start,
        size=size or size_of(profile),
        nodename=NodeName(node),
        pod=PodReference(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"]),
        containers=list(containers),
    )


def size_of(profile: str) -> int:
    """Units that a slice covers on an A100."""
    found = model(A100).profile(profile)
    assert found is not None
    return found.size
