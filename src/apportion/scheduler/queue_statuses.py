"""The status of every Queue: what it holds, requests and is entitled to, and what is wrong with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from apportion.apis import names
from apportion.apis.custom_resources.queues import Queue
from apportion.apis.identities import QueueName
from apportion.apis.kinds import QUEUES
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.core.explanations import queue_conditions
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.entitlements import Entitlements
from apportion.scheduler import queue_metrics
from apportion.view.view import View

log = logging.getLogger(__name__)

PASS_SECONDS = 1.0  # between two looks at all queues
MOST_WRITES = 50  # in one


class QueueStatuses:
    """Written by the leader; `holds` says whether the lease does."""

    def __init__(self, client: Client, view: View, entitlements: Entitlements, *, holds: Callable[[], bool]) -> None:
        self._client, self._view, self._entitlements = client, view, entitlements
        self._holds = holds

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PASS_SECONDS)
            self._entitlements.update()
            queue_metrics.update(self._view.fleet.accounts, self._entitlements.shares)
            try:
                await self._write()
            except errors.ClusterError as error:  # the next pass finds out what is still to be written
                log.warning("the status of queues could not be written: %s", error)

    async def _write(self) -> None:
        written = 0
        demand = self._demand()
        for name, queue in sorted(self._view.queues.objects.items()):
            wanted = self._status(name, queue, demand)
            if _plain(wanted) == _plain(_stored(queue)) or written >= MOST_WRITES or not self._holds():
                continue
            written += 1
            with suppress(errors.NotFound, errors.Conflict, errors.Invalid):
                await self._client.patch(QUEUES, name, {"status": wanted}, subresource="status")

    def _status(self, name: QueueName, queue: Queue, demand: dict[QueueName, Amounts]) -> dict[str, Any]:
        accounts, shares = self._view.fleet.accounts, self._entitlements.shares
        total = self._entitlements.total
        found = {each.type: each for each in queue_conditions.conditions(accounts, shares, total, name)}
        before = {each.type: each for each in queue.status.conditions}
        conditions = []
        for kind in queue_conditions.TYPES:
            finding, known = found.get(kind), before.get(kind)
            status = "True" if finding is not None else "False"
            since = known.last_transition_time if known is not None and known.status == status else clock.timestamp()
            conditions.append(
                {
                    "type": kind,
                    "status": status,
                    "reason": finding.reason if finding is not None else f"Not{kind}",
                    "message": finding.message if finding is not None else "",
                    "lastTransitionTime": since,
                }
            )
        return {
            "conditions": conditions,
            "childQueues": list(accounts.tree.children(name)),
            "allocated": resource_list(accounts.used(name)),
            "allocatedNonPreemptible": resource_list(accounts.fixed(name)),
            "requested": resource_list(demand.get(name, NOTHING)),
            "fairShare": resource_list(shares.get(name, NOTHING)),
        }

    def _demand(self) -> dict[QueueName, Amounts]:
        """Of every queue with all below it."""
        tree = self._view.fleet.accounts.tree
        found: dict[QueueName, Amounts] = {}
        for leaf, amounts in self._entitlements.demand.of_queues().items():
            for name in tree.path(leaf):
                found[name] = found.get(name, NOTHING).plus(amounts)
        return found


def resource_list(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes writes quantities."""
    return {
        names.NVIDIA_GPU: _milli(amounts.gpu),
        "cpu": _milli(amounts.cpu),
        "memory": str(amounts.memory),
    }


def _milli(amount: int) -> str:
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def _stored(queue: Queue) -> dict[str, Any]:
    status = queue.status
    return {
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in status.conditions
        ],
        "childQueues": list(status.child_queues),
        "allocated": dict(status.allocated),
        "allocatedNonPreemptible": dict(status.allocated_non_preemptible),
        "requested": dict(status.requested),
        "fairShare": dict(status.fair_share),
    }


def _plain(status: dict[str, Any]) -> dict[str, Any]:
    """Without times."""
    conditions = [
        {key: value for key, value in each.items() if key != "lastTransitionTime"} for each in status["conditions"]
    ]
    return status | {"conditions": conditions}
