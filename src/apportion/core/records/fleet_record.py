"""A fleet as bytes, to compare states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from apportion.core.evictions.disruption_budgets import as_known

if TYPE_CHECKING:
    from apportion.core.fleet import Fleet


def of(fleet: Fleet, holdings: dict[str, object]) -> bytes:
    """Equal states give equal bytes, however they came about."""
    plain = {
        "nodes": [fleet.nodes[name].record() for name in sorted(fleet.nodes)],
        "holdings": holdings,
        "pods": sorted(fleet.pod_nodes.items()),
        "gpus": sorted(fleet.gpu_nodes.items()),
        "apart": sorted(fleet.apart.items()),
        "apart labels": sorted(fleet.apart_labels),
        "reservations": sorted(fleet.reservations),
        "ended reservations": [list(fleet.ended_reservations[key]) for key in sorted(fleet.ended_reservations)],
        "releasing": sorted(fleet.releasing),
        "queues": list(fleet.accounts.tree.queues.values()),
        "charges": fleet.accounts.record(),
        "gangs": [fleet.gangs[key] for key in sorted(fleet.gangs)],
        "group pods": [[key, sorted(fleet.group_pods[key])] for key in sorted(fleet.group_pods)],
        "budgets": as_known(fleet.budgets, fleet.pod_nodes),
        "namespaces": fleet.namespaces,
        "storage": fleet.storage,
        "sharing": fleet.sharing,
        "reservation namespace": fleet.reservation_namespace,
    }
    return msgspec.json.encode(plain, order="sorted", enc_hook=str)
