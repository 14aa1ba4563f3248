"""The queues of the storm: two levels, with every combination of quota, limit, weight and priority.

12 GPUs are there for them. The quotas together leave some to borrow.
"""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
QUEUES = "/apis/scheduling.run.ai/v2/queues"


def _queue(name: str, parent: str = "", *, priority: int = 100, **gpu: float) -> Json:
    spec: Json = {"priority": priority, "resources": {"gpu": gpu}}
    if parent:
        spec["parentQueue"] = parent
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


TREE = [
    _queue("product", quota=4, limit=8, overQuotaWeight=2),
    _queue("research", quota=3),
    _queue("batch", quota=0, limit=5, overQuotaWeight=0.5),
    _queue("serving", "product", quota=3, limit=4),
    _queue("build", "product", quota=1, limit=6, overQuotaWeight=3),
    _queue("vision", "research", quota=2, priority=200),
    _queue("speech", "research", quota=1, overQuotaWeight=2),
    _queue("night", "batch", quota=0, limit=4),
    _queue("trial", "batch", quota=0, limit=1.5),
]
NAMES = [each["metadata"]["name"] for each in TREE]
LEAVES = [each["metadata"]["name"] for each in TREE if "parentQueue" in each["spec"]]
QUOTAS = (0, 0.5, 1, 2, 3, 4)
LIMITS = (-1, 1, 2, 4, 6, 8)
WEIGHTS = (0, 0.5, 1, 2, 5)


def a_change(dice: random.Random) -> Json:
    """Of one amount of a queue, or of its priority."""
    amounts = {"quota": QUOTAS, "limit": LIMITS, "overQuotaWeight": WEIGHTS}
    field = dice.choice([*amounts, "priority"])
    if field == "priority":
        return {"spec": {"priority": dice.choice([50, 100, 200])}}
    return {"spec": {"resources": {"gpu": {field: dice.choice(amounts[field])}}}}
