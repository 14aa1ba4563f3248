"""What the queue of a pod that has a node is charged for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.apis import names
from apportion.apis.request import Request
from apportion.core import gpu_usage
from apportion.core.node import CPU, MEMORY
from apportion.core.queues.accounts import FOREIGN, Charge
from apportion.core.queues.amounts import Amounts

if TYPE_CHECKING:
    from apportion.core.fleet import Fleet


def of_pod(fleet: Fleet, request: Request) -> Charge | None:
    """None while it is terminating. A pod that holds a GPU for its sharers is not charged: they are."""
    if request.uid in fleet.releasing:
        return None
    if request.namespace == fleet.reservation_namespace and request.whole_gpus:
        return None
    ours = request.scheduler_name in names.OUR_SCHEDULERS
    return Charge(request.queue if ours else FOREIGN, held(fleet, request), ours and not request.preemptible)


def held(fleet: Fleet, request: Request) -> Amounts:
    """What a pod that has a node counts for, whether it is charged or not."""
    resources = request.resources
    return Amounts(gpu_usage.held(fleet, request), resources.get(CPU, 0), resources.get(MEMORY, 0))
