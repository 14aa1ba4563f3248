"""Why a pod fits nowhere, in kube-scheduler's words: people and tools look for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from apportion.core.reasons import Code, Reason

NOT_NAMED = Reason(Code.AFFINITY, "metadata.name")
"""The pod names the nodes that it may run on, and this is none of them."""

_FIXED = {
    Code.WRONG_NODE: "node(s) didn't match the requested node name",
    Code.CORDONED: "node(s) were unschedulable",
    Code.TAINT: "node(s) had untolerated taint(s)",
    Code.SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    Code.AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    Code.PORTS: "node(s) didn't have free ports for the requested pod ports",
    Code.PODS: "Too many pods",
    Code.VOLUME_NODE: "node(s) didn't match PersistentVolume's node affinity",
    Code.VOLUME_CLAIM: "pod has unbound immediate PersistentVolumeClaims",
    Code.VOLUME_BUSY: (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
    Code.SPREAD: "node(s) didn't match pod topology spread constraints",
    Code.SPREAD_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
    Code.NEAR: "node(s) didn't match pod affinity rules",
    Code.APART: "node(s) didn't match pod anti-affinity rules",
    Code.KEPT_APART: "node(s) didn't satisfy existing pods anti-affinity rules",
}
_COULD_BE_MADE_ROOM_FOR = {Code.PORTS, Code.VOLUME_BUSY, Code.SPREAD, Code.APART, Code.KEPT_APART}
_NEVER = "not eligible due to preemptionPolicy=Never"


def sentence(refusals: Sequence[Sequence[Reason]], *, preempts: bool = True) -> str:
    """What each node refused the pod for: `0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu. ...`"""
    if not refusals:
        return "no nodes available to schedule pods"
    causes = _tally(_phrase(reason) for reasons in refusals for reason in reasons)
    none = f"0/{len(refusals)} nodes are available"
    preemption = f"{none}: {_tally(map(_preemption, refusals))}" if preempts else _NEVER
    return f"{none}: {causes}. no new claims to deallocate, preemption: {preemption}."


def _tally(phrases: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {phrase}" for phrase, count in Counter(phrases).items()))


def _phrase(reason: Reason) -> str:
    if reason.code is Code.RESOURCE:
        return f"Insufficient {reason.subject}"
    if reason == NOT_NAMED:
        return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    return _FIXED.get(reason.code, f"node(s) had: {reason.code}")


def _preemption(reasons: Sequence[Reason]) -> str:
    """Nobody is preempted here; kube-scheduler looks for victims only where their end could help."""
    if all(_could_be_made_room_for(reason) for reason in reasons):
        return "No preemption victims found for incoming pod"
    return "Preemption is not helpful for scheduling"


def _could_be_made_room_for(reason: Reason) -> bool:
    if reason.code in {Code.PODS, Code.RESOURCE}:
        return reason.need <= reason.total
    return reason.code in _COULD_BE_MADE_ROOM_FOR
