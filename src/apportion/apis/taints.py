"""Which taints of a node keep a pod away, given what the pod tolerates."""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis.nodes import Taint
from apportion.apis.pods import Toleration

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
HARD_EFFECTS = ("NoSchedule", "NoExecute")


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps pods away and that nothing tolerates."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerated(taint, tolerations):
            return taint
    return None


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value
