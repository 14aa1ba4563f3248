"""Which pods belong to a controller: it adopts orphans that its selector matches and lets go of those it does not."""

from __future__ import annotations

from typing import Any

from apportion.apis.kinds import PODS, Kind
from apportion.apis.selectors import LabelSelector
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.informer import Informer
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import deleting
from pocketkube.controllers.workloads.pod_templates import owner_reference
from pocketkube.informers import BY_OWNER, ORPHANS

Json = dict[str, Any]


async def claimed(
    client: Client, informer: Informer[Json], kind: Kind, owner: Json, selector: LabelSelector
) -> list[Json]:
    """The owner's pods, after orphans were adopted and pods that do not match were released."""
    namespace, uid = owner["metadata"]["namespace"], owner["metadata"]["uid"]
    mine: list[Json] = []
    for pod in informer.indexed(BY_OWNER, uid):
        if selector.matches(pod_facts.labels(pod)):
            mine.append(pod)
        elif not deleting(owner):
            await _patch(client, pod, {"$patch": "delete", "uid": uid})
    if deleting(owner):
        return mine
    for pod in informer.indexed(ORPHANS, namespace):
        fits = selector.matches(pod_facts.labels(pod)) and (selector.match_labels or selector.match_expressions)
        if fits and pod_facts.active(pod) and await _patch(client, pod, owner_reference(kind, owner)):
            mine.append(pod)
    return mine


async def _patch(client: Client, pod: Json, reference: Json) -> bool:
    meta = pod["metadata"]
    patch = {"metadata": {"uid": meta["uid"], "ownerReferences": [reference]}}
    try:
        await client.patch(PODS, meta["name"], patch, namespace=meta["namespace"], how=PatchType.strategic)
    except (errors.NotFound, errors.Conflict, errors.Invalid):
        return False
    return True
