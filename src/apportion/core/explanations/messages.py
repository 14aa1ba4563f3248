"""Refusals as text, for events, conditions and commands; the text of each reason is in its row.

Whoever may read the events of a namespace reads this text. Pods of other namespaces are counted in it and never named.
"""

from __future__ import annotations

from apportion.core.reasons import Code
from apportion.core.refusals import NodeGroup, Refusal, Remedy

LONGEST = 1000  # an Event's message may have 1,024 bytes


def of(refusal: Refusal, *, reader: str = "") -> str:
    """One line: how many nodes are available, why the others are not, and the cheapest change.

    `reader` is the namespace in which it is read, if that is not the one of the pod that the refusal was made for.
    """
    if refusal.detail:
        return _limited(f"{_start(refusal.code)}{refusal.detail}.")
    text = f"0/{refusal.total_nodes} nodes are available for {wanted(refusal)}"
    why = "; ".join(_group(group) for group in refusal.groups)
    if why:
        text += f": {why}"
    text += "."
    if refusal.remedy is not None:
        text += f" Cheapest change: {remedy(refusal.remedy, reader or refusal.namespace)}."
    return _limited(text)


def attempt_in(text: str) -> Code | None:
    """The reason that an attempt to bind the pod found out, if this is its text: no decision can give it again."""
    codes = (code for code in Code if code.row.from_attempt)
    return next((code for code in codes if text.startswith(_start(code) + code.row.words.split("{")[0])), None)


def _start(code: Code) -> str:
    return "Cannot be scheduled: " if code.row.lasting else "Cannot be scheduled now: "


def wanted(refusal: Refusal) -> str:
    return " + ".join(f"{count} x {name}" for name, count in refusal.wants) or "this pod"


def remedy(change: Remedy, reader: str) -> str:
    match change.kind:
        case "profile" | "model":
            field = f"{change.field} " if change.field else ""
            return f"request {field}{change.instead} instead of {change.subject}"
        case "quota":
            return f"increase the {change.subject} quota by {change.count}"
        case "free":
            return f"free {change.subject} on node {change.node} by deleting {_listed(change.pods, reader)}"
        case "rule":
            relaxation = change.code.row.relaxation if change.code else None
            assert relaxation is not None
            return relaxation.words.format(subject=change.subject, node=change.node)
        case _:
            return f"add a node like {change.node}"


_LISTED = 3


def _listed(pods: tuple[str, ...], reader: str) -> str:
    own = [name for name in pods if _namespace(name) == reader]
    others = [name for name in pods if _namespace(name) != reader]
    parts = []
    if own:
        more = f" and {len(own) - _LISTED} more" if len(own) > _LISTED else ""
        parts.append(f"{'pod' if len(own) == 1 else 'pods'} {', '.join(own[:_LISTED])}{more}")
    if others:
        many = "1 pod" if len(others) == 1 else f"{len(others)} pods"
        single = len({_namespace(name) for name in others}) == 1
        parts.append(f"{many} of {'another namespace' if single else 'other namespaces'}")
    return " and ".join(parts)


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]


def _limited(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _group(group: NodeGroup) -> str:
    count = len(group.nodes)
    said = group.code.row.said(group.subject, group.need, group.free, group.total, nodes=count)
    return f"{count} {'node' if count == 1 else 'nodes'} {said}"
