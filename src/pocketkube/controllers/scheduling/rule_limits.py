"""How many scheduling rules of a pod the default scheduler considers.

Every rule is compared with every node, or with every pod, on the event loop that also serves the API. A pod above
these limits stays pending, with an event that says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apportion.apis.errors import InputError

Json = dict[str, Any]

MOST_NODE_RULES = 2_000  # tolerations, requirements of node affinity, node selectors and host ports
MOST_POD_RULES = 100  # terms of pod affinity and spread constraints


def check(spec: Json) -> None:
    """Raises `InputError` for a pod with too many rules."""
    for field, count, most in (
        ("spec.tolerations", len(spec.get("tolerations") or ()), MOST_NODE_RULES),
        ("spec.nodeSelector", len(spec.get("nodeSelector") or ()), MOST_NODE_RULES),
        ("spec.affinity.nodeAffinity", sum(_requirements(spec)), MOST_NODE_RULES),
        ("spec.containers[*].ports", sum(_host_ports(spec)), MOST_NODE_RULES),
        ("spec.affinity", sum(_pod_terms(spec)), MOST_POD_RULES),
        ("spec.topologySpreadConstraints", len(spec.get("topologySpreadConstraints") or ()), MOST_POD_RULES),
    ):
        if count > most:
            raise InputError(field, count, f"use at most {most} scheduling rules")


def _requirements(spec: Json) -> Iterator[int]:
    rules = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = (rules.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    for term in (*required, *(each.get("preference") or {} for each in preferred)):
        for part in ("matchExpressions", "matchFields"):
            yield from (1 + len(each.get("values") or ()) for each in term.get(part) or ())


def _host_ports(spec: Json) -> Iterator[int]:
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield sum(1 for port in container.get("ports") or () if port.get("hostPort"))


def _pod_terms(spec: Json) -> Iterator[int]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or {}).get(kind) or {}
        for each in rules.values():
            yield len(each or ())
