"""Why a node cannot take a pod, in kube-scheduler's words: people and tools look for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_NEVER = "not eligible due to preemptionPolicy=Never"


class Refusal(NamedTuple):
    """`preemption_helps` if the end of other pods could make room: only then kube-scheduler looks for victims."""

    text: str
    preemption_helps: bool = False


def sentence(refusals: Sequence[Sequence[Refusal]], *, preempts: bool = True) -> str:
    """What each node refused the pod for: `0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu. ...`"""
    if not refusals:
        return "no nodes available to schedule pods"
    causes = _tally(refusal.text for of_node in refusals for refusal in of_node)
    none = f"0/{len(refusals)} nodes are available"
    preemption = f"{none}: {_tally(map(_preemption, refusals))}" if preempts else _NEVER
    return f"{none}: {causes}. no new claims to deallocate, preemption: {preemption}."


def _tally(phrases: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {phrase}" for phrase, count in Counter(phrases).items()))


def _preemption(of_node: Sequence[Refusal]) -> str:
    """Nobody is preempted here."""
    if all(refusal.preemption_helps for refusal in of_node):
        return "No preemption victims found for incoming pod"
    return "Preemption is not helpful for scheduling"
