"""The fair share of every queue, of each resource."""

from __future__ import annotations

from collections.abc import Mapping

from apportion.apis.identities import QueueName
from apportion.core.queues.amounts import NOTHING, RESOURCES, Amounts
from apportion.core.queues.fair_shares import QueueDemand, fair_shares
from apportion.core.queues.tree import QueueTree

Shares = Mapping[QueueName, Amounts]


def compute(tree: QueueTree, total: Amounts, demand: Mapping[QueueName, Amounts]) -> Shares:
    """`demand` is what the groups of each queue hold and ask for together; queues with problems have no share."""
    usable = [queue for queue in tree.queues.values() if tree.broken(queue.name) is None]
    divided = []
    for number in range(len(RESOURCES)):
        rows = [
            QueueDemand(
                name=queue.name,
                parent=queue.parent or None,
                quota=queue.allowances[number].quota,
                limit=queue.allowances[number].limit,
                weight=queue.allowances[number].weight,
                priority=queue.priority,
                request=demand.get(queue.name, NOTHING)[number],
                created=queue.created,
            )
            for queue in usable
        ]
        divided.append(fair_shares(total[number], rows))
    return {queue.name: Amounts(*(shares[queue.name] for shares in divided)) for queue in usable}
