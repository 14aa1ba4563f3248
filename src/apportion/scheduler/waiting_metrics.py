"""How many pods wait, by the layer that blocks them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from prometheus_client import Gauge

from apportion.apis import names
from apportion.core.reasons import Layer
from apportion.scheduler.backlog import Backlog
from apportion.view.view import View

WAITING = Gauge(
    "apportion_scheduler_waiting_pods",
    "Pods without a node, by the layer that blocks them; none: about to be decided or bound.",
    ["layer"],
)
NOT_BLOCKED = "none"
PASS_SECONDS = 2.0


async def run(view: View, backlog: Backlog) -> None:
    """Keep the numbers up to date; a process that does not lead has none."""
    try:
        while True:
            _show(by_layer(view, backlog))
            await asyncio.sleep(PASS_SECONDS)
    finally:
        _show({})


def by_layer(view: View, backlog: Backlog) -> dict[str, int]:
    """Gated pods, and those whose request is invalid, never reach the backlog: admission blocks them."""
    parked = backlog.by_layer()
    found: Counter[str] = Counter(parked)
    for waiting in view.waiting:
        if waiting.pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            continue
        request, problem = waiting.reading
        if request is None or problem is not None or request.gated:
            found[Layer.ADMISSION] += 1
    found[NOT_BLOCKED] = max(0, len(backlog) - parked.total())
    return dict(found)


def _show(counts: Mapping[str, int]) -> None:
    for layer in (*Layer, NOT_BLOCKED):
        WAITING.labels(layer).set(counts.get(layer, 0))
