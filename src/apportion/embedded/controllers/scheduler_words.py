"""Why a pod fits nowhere, in kube-scheduler's words: people and tools look for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from apportion.core.reasons import Code, Reason

_FIXED = {
    Code.WRONG_NODE: "node(s) didn't match the requested node name",
    Code.CORDONED: "node(s) were unschedulable",
    Code.SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    Code.AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    Code.PORTS: "node(s) didn't have free ports for the requested pod ports",
    Code.PODS: "Too many pods",
    Code.VOLUME_NODE: "node(s) didn't match PersistentVolume's node affinity",
    Code.VOLUME_CLAIM: "pod has unbound immediate PersistentVolumeClaims",
    Code.SPREAD: "node(s) didn't match pod topology spread constraints",
    Code.SPREAD_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
    Code.NEAR: "node(s) didn't match pod affinity rules",
    Code.APART: "node(s) didn't match pod anti-affinity rules",
    Code.KEPT_APART: "node(s) didn't satisfy existing pods anti-affinity rules",
}


def sentence(reasons: Sequence[Reason]) -> str:
    """`0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu.`"""
    if not reasons:
        return "no nodes available to schedule pods"
    counts = Counter(_phrase(reason) for reason in reasons)
    parts = sorted(f"{count} {phrase}" for phrase, count in counts.items())
    return f"0/{len(reasons)} nodes are available: {', '.join(parts)}."


def _phrase(reason: Reason) -> str:
    if reason.code is Code.RESOURCE:
        return f"Insufficient {reason.subject}"
    if reason.code is Code.TAINT:
        return f"node(s) had untolerated taint(s) {{{_taint(reason.subject)}}}"
    return _FIXED.get(reason.code, f"node(s) had: {reason.code}")


def _taint(spelt: str) -> str:
    """`key=value:Effect` as kube-scheduler writes it."""
    key, _, value = spelt.rpartition(":")[0].partition("=")
    return f"{key}: {value}"
