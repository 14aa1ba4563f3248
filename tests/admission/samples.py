"""Pods for the admission tests, as an API server sends them."""

from __future__ import annotations

import copy
from typing import Any

from apportion.admission import differ, pods
from apportion.admission.offers import Offers
from apportion.admission.pods import Surroundings

CATALOGUED = frozenset(
    {"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "2g.20gb", "3g.20gb", "4g.20gb", "7g.40gb", "7g.70gb"}
)
A100 = frozenset({"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"})
OFFERS = Offers(dynamic=A100, catalogued=CATALOGUED)


def container(
    name: str = "main", *, limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None
) -> dict[str, Any]:
    resources = {key: dict(value) for key, value in (("limits", limits), ("requests", requests)) if value is not None}
    return {"name": name, "image": "busybox:1.36", "resources": resources}


def pod(
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "story", "namespace": "default"}
    if annotations:
        metadata["annotations"] = annotations
    body = {"containers": list(containers), **({"initContainers": init} if init else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def created(given: dict[str, Any], offers: Offers = OFFERS, **around: Any) -> dict[str, Any]:
    """The pod as admission leaves it."""
    after = copy.deepcopy(given)
    pods.create(after, Surroundings(offers, **around))
    return after


def updated(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    after = copy.deepcopy(new)
    pods.update(after, old)
    return after


def patch(given: dict[str, Any], offers: Offers = OFFERS) -> list[differ.Operation]:
    return differ.difference(given, created(given, offers))


def resources(given: dict[str, Any], index: int = 0, key: str = "containers") -> dict[str, Any]:
    found: dict[str, Any] = given["spec"][key][index]["resources"]
    return found


def both(amounts: dict[str, str]) -> dict[str, dict[str, str]]:
    return {"limits": amounts, "requests": amounts}
