"""Refusals in words: the one place where event text, Status text and CLI text are written."""

from __future__ import annotations

from apportion.core.reasons import Code
from apportion.core.refusals import NodeGroup, Refusal, Remedy

LONGEST = 1000  # an Event's message may have 1,024 bytes


def of(refusal: Refusal) -> str:
    """One line: how many nodes can take it, why the others cannot, and what would help."""
    text = f"0/{refusal.total_nodes} nodes can take {wanted(refusal)} now"
    why = "; ".join(_group(group) for group in refusal.groups)
    if why:
        text += f": {why}"
    if refusal.detail:
        text += f": {refusal.detail}" if not why else f". {refusal.detail}"
    text += "."
    if refusal.remedy is not None:
        text += f" Cheapest change: {remedy(refusal.remedy)}."
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def wanted(refusal: Refusal) -> str:
    return " + ".join(f"{count} x {name}" for name, count in refusal.wants) or "this pod"


def remedy(change: Remedy) -> str:
    match change.kind:
        case "profile" | "model":
            field = f"{change.field} " if change.field else ""
            return f"ask for {field}{change.instead} instead of {change.subject}"
        case "quota":
            return f"raise the {change.subject} quota by {change.count}"
        case "free":
            many = "pod" if change.count == 1 else "pods"
            return f"free {change.subject} on node {change.node} by ending {many} {_listed(change.pods)}"
        case "rule":
            return _RULES.get(change.code, "relax the rule {subject}").format(subject=change.subject, node=change.node)
        case _:
            return f"add a node like {change.node}"


_LISTED = 3


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


_RULES: dict[str, str] = {
    Code.CORDONED: "uncordon node {node}",
    Code.TAINT: "tolerate the taint {subject}",
    Code.SELECTOR: "remove {subject} from the pod's node selector",
    Code.AFFINITY: "relax the pod's required node affinity",
    Code.PORTS: "give up host port {subject}",
    Code.NEAR: "relax the pod's required pod affinity",
    Code.APART: "relax the pod's required pod anti-affinity",
    Code.SPREAD: "relax the pod's topology spread over {subject}",
    Code.SPREAD_LABEL: "relax the pod's topology spread over {subject}",
    Code.AGENT_NOT_READY: "bring the node agent of {node} up",
    Code.NOT_MIG_CAPABLE: "label node {node} nvidia.com/mig.capable=true",
}


def _group(group: NodeGroup) -> str:
    one = len(group.nodes) == 1
    key = (group.code, "partly") if group.code is Code.NO_PLACE and group.free else group.code
    template = _TEMPLATES.get(key, "{does} not allow it ({code} {subject})")
    said = template.format(
        has="has" if one else "have",
        does="does" if one else "do",
        is_="is" if one else "are",
        code=group.code,
        subject=group.subject,
        need=group.need,
        used=group.total - group.free,
        total=group.total,
    )
    return f"{len(group.nodes)} {'node' if one else 'nodes'} {said}"


_TEMPLATES: dict[Code | tuple[Code, str], str] = {
    Code.WRONG_NODE: "{is_} not the node that the pod is tied to",
    Code.CORDONED: "{is_} cordoned",
    Code.TAINT: "{has} the untolerated taint {subject}",
    Code.SELECTOR: "{does} not have the label {subject}",
    Code.AFFINITY: "{does} not match the pod's node affinity",
    Code.PORTS: "{has} host port {subject} in use",
    Code.RESOURCE: "{has} too little {subject} (need {need}, {used} of {total} in use)",
    Code.PODS: "{has} as many pods as allowed",
    Code.SPREAD: "{does} not keep the spread over {subject}",
    Code.SPREAD_LABEL: "{has} no label {subject} to spread over",
    Code.NEAR: "{is_} not near the pods that the pod wants to be near",
    Code.APART: "{is_} too near pods that the pod wants to be apart from",
    Code.KEPT_APART: "{has} pods near that want to be apart from this one",
    Code.VOLUME_NODE: "{is_} out of reach for volume claim {subject}",
    Code.VOLUME_CLAIM: "cannot serve volume claim {subject}, which is missing, unbound or being deleted",
    Code.VOLUME_BUSY: "cannot serve volume claim {subject}, which another pod uses alone",
    Code.VOLUME_LIMIT: "{has} no room for another volume of {subject}",
    Code.NOT_MIG_CAPABLE: "{has} no label nvidia.com/mig.capable=true",
    Code.AGENT_NOT_READY: "{has} no ready node agent",
    Code.NO_PROFILE: "{has} no GPU with profile {subject}",
    Code.NO_PLACE: "{has} no free place ({used} of {total} places of {subject} in use)",
    (Code.NO_PLACE, "partly"): "{has} no free place for {need} x {subject} ({used} of {total} places in use)",
    Code.NO_DEVICE: "{has} too few free GPUs (need {need}, {used} of {total} in use)",
    Code.LEFTOVER_CLAIMS: "must wait for claims of this pod that it does not ask for to be deleted",
    Code.NO_MEMORY: "{has} too little free memory on one GPU (need {need} MiB)",
}
