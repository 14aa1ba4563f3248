"""What admission makes of a pod, and what of it a test looks at."""

from __future__ import annotations

import copy
from typing import Any

from apportion.admission import json_diff, pods
from apportion.admission.offers import Offers
from apportion.admission.pods import ClusterFacts

CATALOGUED = frozenset(
    {"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "2g.20gb", "3g.20gb", "4g.20gb", "7g.40gb", "7g.70gb"}
)
A100 = frozenset({"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"})
OFFERS = Offers(dynamic=A100, catalogued=CATALOGUED)


def created(given: dict[str, Any], offers: Offers = OFFERS, **facts: Any) -> dict[str, Any]:
    """The pod as admission leaves it."""
    after = copy.deepcopy(given)
    pods.create(after, ClusterFacts(offers, **facts))
    return after


def updated(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    after = copy.deepcopy(new)
    pods.update(after, old)
    return after


def patch(given: dict[str, Any], offers: Offers = OFFERS) -> list[json_diff.Operation]:
    return json_diff.difference(given, created(given, offers))


def resources(given: dict[str, Any], index: int = 0, key: str = "containers") -> dict[str, Any]:
    found: dict[str, Any] = given["spec"][key][index]["resources"]
    return found


def both(amounts: dict[str, str]) -> dict[str, dict[str, str]]:
    return {"limits": amounts, "requests": amounts}
