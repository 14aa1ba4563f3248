"""`apportion why POD`: why a pod is pending, with numbers, and the cheapest change."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from apportion.cli import connecting, options

if TYPE_CHECKING:
    from apportion.apis.pods import Pod
    from apportion.cluster.client import Client
    from apportion.core.evictions.successor_places import KeptPlace
    from apportion.core.queues.raises import Raise
    from apportion.core.refusals import NodeGroup, Standing
    from apportion.view.sharing.pod_shares import PodShare
    from apportion.view.why import Answer

SHOWN_NODES = 4
_REASONS = ("FailedScheduling", "RejectedByKubelet", "NotAdmitted")  # of events that say why a pod does not run


def command(
    pod: Annotated[str, typer.Argument(help="Name of the pod, or NAMESPACE/NAME.")],
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace of the pod.", callback=options.namespace)
    ] = None,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format: text or json.")
    ] = "text",
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Explain why a pod is pending: the blocking layer, numbers per group of nodes, and the cheapest change.

    The answer is computed from the current state of the cluster, with the code of the scheduler. If several nodes are
    suitable, the scheduler may select another one than the node that is named here. With rights in the namespace of the
    pod only, the answer is the last report of the scheduler; the ClusterRole apportion-viewer allows the rest. The exit
    code is 0 if there is an answer, and 1 if the pod or the cluster is not found.
    """
    logging.basicConfig(level=logging.ERROR)
    given, _, name = pod.rpartition("/")
    if not options.is_object_name(name) or (given and not options.is_object_name(given)):
        typer.echo(f"{pod!r} is not a pod: use NAME, or NAMESPACE/NAME", err=True)
        raise typer.Exit(connecting.BAD_INPUT)
    if given and namespace and given != namespace:
        typer.echo(f"{pod!r} is not a pod of namespace {namespace}: use NAME, or NAMESPACE/NAME", err=True)
        raise typer.Exit(connecting.BAD_INPUT)
    with connecting.errors_reported():
        answer = asyncio.run(_ask(name, given or namespace or connecting.namespace(kubeconfig), kubeconfig))
    typer.echo(json.dumps(as_json(answer), indent=2) if output == "json" else as_text(answer))


async def _ask(name: str, namespace: str, kubeconfig: Path | None) -> Answer:
    from apportion.apis.kinds import PODS
    from apportion.apis.pods import Pod
    from apportion.view import leader_settings, readable, why
    from apportion.view.sharing import binder_state

    async with connecting.client(kubeconfig) as client:
        pod = await client.get(PODS, name, namespace=namespace, into=Pod)
        installation = connecting.installation()
        seen = await readable.read(client, installation, namespace)
        asked = seen.view.shares.request_of(pod.uid)
        binder = await binder_state.read(client, installation) if asked is not None else why.NOT_READ
        if seen.hidden:
            return why.reported(pod, await _newest_event(client, pod), seen.note, asked, binder)
        current = seen.informers.pods.get(name, namespace)
        settings = await leader_settings.read(client, installation)
        kept = await _kept_places(client, installation.namespace)
        answer = why.answer(seen.view, current or pod, settings.new_policy(), settings.consolidation, kept, binder)
        if answer.state in {why.PodState.WAITING, why.PodState.FITS}:
            answer = replace(answer, note=settings.note)
        if answer.state is why.PodState.FITS and not settings.leads:
            where = f"Deployment {installation.scheduler_deployment} in namespace {installation.namespace}"
            hint = f" But there is no leader: check that {where} is available."
            answer = replace(answer, sentence=answer.sentence + hint)
        return answer


async def _newest_event(client: Client, pod: Pod) -> str:
    """The message of the last warning about scheduling the pod; empty if there is none, or if it may not be read."""
    from apportion.apis.kinds import EVENTS
    from apportion.cluster import errors

    meta = pod.metadata
    try:
        listing = await client.list(EVENTS, namespace=meta.namespace, fields=f"involvedObject.uid={meta.uid}")
    except errors.Forbidden:
        return ""
    told = [event for event in listing.items if event.get("type") == "Warning" and event.get("reason") in _REASONS]
    newest = max(told, key=lambda event: int(event["metadata"]["resourceVersion"]), default=None)
    return str(newest.get("message", "")) if newest else ""


async def _kept_places(client: Client, namespace: str) -> list[KeptPlace]:
    """For successors of pods that were moved; none if they may not be read."""
    from apportion.cluster import errors
    from apportion.view import kept_places

    try:
        notes = await kept_places.read(client, namespace)
    except errors.ApiError:
        return []
    return [place for place, _ in kept_places.current(notes, time.time())]


def as_json(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"pod": answer.pod, "state": answer.state, "sentence": answer.sentence}
    known = {"layer": answer.layer, "node": answer.node, "shares": [_share(share) for share in answer.shares]}
    found |= {key: value for key, value in known.items() if value}
    if answer.slices:
        found["slices"] = [
            {
                "profile": claim.spec.profile,
                "gpu": claim.spec.gpu_uuid,
                "start": claim.spec.mig_placement.start,
                "size": claim.spec.mig_placement.size,
                "state": claim.state,
            }
            for claim in answer.slices
        ]
    refusal = answer.refusal
    if refusal is not None:
        found["code"] = refusal.code
        found["wants"] = dict(refusal.wants)
        found["nodes"] = refusal.total_nodes
        found["groups"] = [_group(group) for group in refusal.groups]
        change = refusal.remedy
        if change is not None:
            known = {key: getattr(change, key) for key in ("subject", "instead", "node", "count", "code")}
            found["cheapestChange"] = {"kind": change.kind, **{key: value for key, value in known.items() if value}}
            if change.pods:
                found["cheapestChange"]["pods"] = list(change.pods)
            if change.raises:
                found["cheapestChange"]["queues"] = [_raise(each) for each in change.raises]
        if refusal.standing is not None:
            found["queue"] = _standing(refusal.standing)
        if refusal.remark:
            found["remark"] = refusal.remark
    if answer.told:
        found["conditionMessage"] = answer.told
    if answer.note:
        found["note"] = answer.note
    return found


def _share(share: PodShare) -> dict[str, Any]:
    """In MiB where the memory of the GPU is known, in thousandths otherwise."""
    known = {"gpu": share.uuid, "slot": share.slot, "group": share.group}
    amounts = {"mib": share.mib, "memoryMiB": share.memory_mib, "milli": share.milli}
    return {key: value for key, value in {**known, **amounts}.items() if value}


def _raise(change: Raise) -> dict[str, Any]:
    from apportion.core.queues import quantities

    before, after = (quantities.stated(change.resource, each) for each in (change.before, change.after))
    field = f"spec.resources.{change.resource}.{change.gate}"
    return {"queue": change.queue, "field": field, "before": before, "after": after}


def _standing(standing: Standing) -> dict[str, Any]:
    """Amounts are in milli-GPU, milli-CPU or bytes."""
    return {
        "name": standing.queue,
        "resource": standing.resource,
        "used": standing.used,
        "fairShare": standing.share,
        "quota": standing.quota,
        "requested": standing.need,
        "nothingReclaimedBecause": standing.reclaim,
        "queuesAboveShare": list(standing.above),
        "protectedPods": dict(standing.protected),
    }


def as_text(answer: Answer) -> str:
    lines = [f"{answer.pod} {_headline(answer)}", f"  {answer.sentence}"]
    lines += [
        f"  slice   {claim.spec.profile} at {claim.spec.mig_placement.start} on {claim.spec.gpu_uuid} ({claim.state})"
        for claim in answer.slices
    ]
    lines += [f"  share   {share.said} (group {share.group})" for share in answer.shares]
    if answer.refusal is not None and answer.refusal.groups:
        rows = [("nodes", "reason", "need", "in use", ""), *(_row(group) for group in answer.refusal.groups)]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines.append("")
        lines += [
            "  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows
        ]
    if answer.refusal is not None and answer.refusal.remedy is not None and answer.refusal.remedy.pods:
        lines += ["", f"  Pods to delete: {', '.join(answer.refusal.remedy.pods)}"]
    if answer.told and answer.told != answer.sentence:
        lines += ["", f"  Condition of the pod: {answer.told}"]
    if answer.note:
        lines += ["", f"  {answer.note}"]
    return "\n".join(lines)


def _headline(answer: Answer) -> str:
    if answer.layer:
        return f"is blocked by: {answer.layer}"
    return {
        "waiting": "is pending",
        "gated": "has scheduling gates",
        "fits": "can be scheduled",
        "binding": "is being bound",
        "placed": "is scheduled",
        "running": "is running",
        "ended": "has terminated",
        "leaving": "is being deleted",
        "foreign": "belongs to another scheduler",
    }[answer.state]


def _group(group: NodeGroup) -> dict[str, Any]:
    return {
        "code": group.code,
        "layer": group.code.row.layer,
        "subject": group.subject,
        "nodes": list(group.nodes),
        "need": group.need,
        "free": group.free,
        "total": group.total,
    }


def _row(group: NodeGroup) -> tuple[str, str, str, str, str]:
    reason = f"{group.code} {group.subject}".strip()
    used = f"{group.total - group.free} of {group.total}" if group.total else ""
    shown = ", ".join(group.nodes[:SHOWN_NODES])
    more = len(group.nodes) - SHOWN_NODES
    return (
        str(len(group.nodes)),
        reason,
        str(group.need) if group.need else "",
        used,
        shown if more <= 0 else f"{shown} and {more} more",
    )
