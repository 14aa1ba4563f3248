"""Refusals as text, for events, conditions and commands; the text of each reason is in its row.

Whoever may read the events of a namespace reads this text. Pods of other namespaces are counted in it and never named.
"""

from __future__ import annotations

from apportion.core.explanations import queue_reasons
from apportion.core.queues import quantities
from apportion.core.queues.raises import Raise
from apportion.core.reasons import Code
from apportion.core.refusals import NodeGroup, NoReclaim, Refusal, Remedy, Standing

LONGEST = 1000  # an Event's message may have 1,024 bytes


def of(refusal: Refusal, *, reader: str = "") -> str:
    """One line: how many nodes are available, why the others are not, and the cheapest change.

    `reader` is the namespace in which it is read, if that is not the one of the pod that the refusal was made for.
    """
    if refusal.detail:
        text = f"{_start(refusal.code)}{refusal.detail}."
    else:
        text = f"0/{refusal.total_nodes} nodes are available for {wanted(refusal)}"
        why = "; ".join(_group(group) for group in refusal.groups)
        text += f": {why}." if why else "."
    more = []
    if refusal.standing is not None:
        more.append(standing(refusal.standing))
    if refusal.remark:
        more.append(refusal.remark)
    if refusal.remedy is not None:
        more.append(f"Cheapest change: {remedy(refusal.remedy, reader or refusal.namespace)}.")
    rest = "".join(f" {sentence}" for sentence in more)
    return _limited(_limited(text, max(LONGEST - len(rest), LONGEST // 2)) + rest)


def attempt_in(text: str) -> Code | None:
    """The reason that an attempt to bind the pod found out, if this is its text: no decision can give it again."""
    return next((code for code in Code if code.row.from_attempt and gives(text, code)), None)


def gives(text: str, code: Code) -> bool:
    """Whether this is the text of a refusal for that reason, whose own words must begin the text."""
    return text.startswith(_start(code) + code.row.words.split("{")[0])


def _start(code: Code) -> str:
    return "Cannot be scheduled: " if code.row.lasting else "Cannot be scheduled now: "


def wanted(refusal: Refusal) -> str:
    return " + ".join(f"{count} x {name}" for name, count in refusal.wants) or "this pod"


def standing(found: Standing) -> str:
    """Where the queue stands, and why nothing is reclaimed for the pod. Queues are named, pods are counted."""
    used = quantities.used_of(found.resource, found.used, found.share, "fair share")
    quota = quantities.number(found.resource, found.quota)
    return f"Queue {found.queue}: {used} in use (quota {quota}); {_no_reclaim(found)}."


def _no_reclaim(found: Standing) -> str:
    above = queue_reasons.listed(found.above)
    one = len(found.above) == 1
    others = f"{'queue' if one else 'queues'} {above} {'uses' if one else 'use'} more than {'its' if one else 'their'}"
    match found.reclaim:
        case NoReclaim.AT_SHARE:
            more = quantities.number(found.resource, found.need)
            return f"{more} more would exceed it, so nothing is reclaimed"
        case NoReclaim.NOBODY_ABOVE:
            return "no other queue uses more than its fair share, so there is nothing to reclaim"
        case NoReclaim.PROTECTED:
            return f"{others} share, but the pods there are protected: {_counted(found)}"
        case _:
            protected = f"; protected: {_counted(found)}" if found.protected else ""
            return f"{others} share, but evicting pods there does not make enough room{protected}"


def _counted(found: Standing) -> str:
    return ", ".join(f"{count} {what}" for what, count in found.protected)


def remedy(change: Remedy, reader: str) -> str:
    """In words; several changes are joined."""
    parts = [_raise(each) for each in change.raises]
    if change.kind != "quota":
        parts.append(_change(change, reader))
    return " and ".join(parts)


def _raise(change: Raise) -> str:
    before, after = (quantities.stated(change.resource, each) for each in (change.before, change.after))
    return f"increase spec.resources.{change.resource}.{change.gate} of queue {change.queue} from {before} to {after}"


def _change(change: Remedy, reader: str) -> str:
    match change.kind:
        case "profile" | "model":
            field = f"{change.field} " if change.field else ""
            return f"request {field}{change.instead} instead of {change.subject}"
        case "free":
            where = f" on node {change.node}" if change.node else ""
            return f"free {change.subject}{where} by deleting {_listed(change.pods, reader)}"
        case "rule":
            relaxation = change.code.row.relaxation if change.code else None
            assert relaxation is not None
            return relaxation.words.format(subject=change.subject, node=change.node)
        case _:
            return (
                f"add {change.count} nodes like {change.node}" if change.count > 1 else f"add a node like {change.node}"
            )


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


def _limited(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _group(group: NodeGroup) -> str:
    count = len(group.nodes)
    said = group.code.row.said(group.subject, group.need, group.free, group.total, nodes=count)
    return f"{count} {'node' if count == 1 else 'nodes'} {said}"
