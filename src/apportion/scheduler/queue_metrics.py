"""Queues as numbers, under the names that dashboards for the original scheduler know."""

from __future__ import annotations

from prometheus_client import Gauge

from apportion.apis.identities import QueueName
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import NOTHING
from apportion.core.queues.fair_shares import UNLIMITED
from apportion.core.queues.shares import Shares

_QUEUE = ["queue_name"]
INFO = Gauge("kai_queue_info", "1 for every queue.", [*_QUEUE, "parent"])
DESERVED_GPUS = Gauge("kai_queue_deserved_gpus", "Quota of the queue in GPUs; -1 is unlimited.", _QUEUE)
QUOTA_CPU = Gauge("kai_queue_quota_cpu_cores", "Quota of the queue in cores; -1 is unlimited.", _QUEUE)
QUOTA_MEMORY = Gauge("kai_queue_quota_memory_bytes", "Quota of the queue in bytes; -1 is unlimited.", _QUEUE)
ALLOCATED_GPUS = Gauge("kai_queue_allocated_gpus", "GPUs that pods of the queue hold.", _QUEUE)
ALLOCATED_CPU = Gauge("kai_queue_allocated_cpu_cores", "Cores that pods of the queue hold.", _QUEUE)
ALLOCATED_MEMORY = Gauge("kai_queue_allocated_memory_bytes", "Memory that pods of the queue hold.", _QUEUE)
FAIR_SHARE_GPU = Gauge("queue_fair_share_gpu", "Fair share of the queue in GPUs.", _QUEUE)
FAIR_SHARE_CPU = Gauge("queue_fair_share_cpu_cores", "Fair share of the queue in cores.", _QUEUE)
FAIR_SHARE_MEMORY = Gauge("queue_fair_share_memory_gb", "Fair share of the queue in 10^9 bytes.", _QUEUE)

_BY_QUEUE = (
    DESERVED_GPUS,
    QUOTA_CPU,
    QUOTA_MEMORY,
    ALLOCATED_GPUS,
    ALLOCATED_CPU,
    ALLOCATED_MEMORY,
    FAIR_SHARE_GPU,
    FAIR_SHARE_CPU,
    FAIR_SHARE_MEMORY,
)
_shown: dict[QueueName, str] = {}  # queue -> parent


def update(accounts: Accounts, shares: Shares) -> None:
    for name, parent in [*_shown.items()]:
        queue = accounts.tree.queues.get(name)
        if queue is None or queue.parent != parent:
            INFO.remove(name, parent)
            for gauge in _BY_QUEUE:
                gauge.remove(name)
            del _shown[name]
    for name, queue in accounts.tree.queues.items():
        _shown[name] = queue.parent
        used, share = accounts.used(name), shares.get(name, NOTHING)
        INFO.labels(name, queue.parent).set(1)
        values = (
            _scaled(queue.gpu.quota, 1000),
            _scaled(queue.cpu.quota, 1000),
            _scaled(queue.memory.quota, 1),
            used.gpu / 1000,
            used.cpu / 1000,
            used.memory,
            share.gpu / 1000,
            share.cpu / 1000,
            share.memory / 10**9,
        )
        for gauge, value in zip(_BY_QUEUE, values, strict=True):
            gauge.labels(name).set(value)


def _scaled(amount: int, unit: int) -> float:
    return UNLIMITED if amount == UNLIMITED else amount / unit
