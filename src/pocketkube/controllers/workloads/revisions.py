"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, for rollbacks and pod labels."""

from __future__ import annotations

from typing import Any

from apportion.apis.kinds import CONTROLLER_REVISIONS, Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from pocketkube.controllers.workloads import pod_templates
from pocketkube.informers import BY_OWNER, Informers

Json = dict[str, Any]
HASH_LABEL = "controller-revision-hash"


class Revisions:
    """The revisions of owners of one kind. `label` is the one that revisions carry their hash in."""

    def __init__(self, client: Client, informers: Informers, kind: Kind, *, label: str = HASH_LABEL) -> None:
        self._label = label
        self._client = client
        self._informer = informers.of(CONTROLLER_REVISIONS)
        self._kind = kind

    async def current(self, owner: Json) -> str:
        """The hash of the owner's present template; its revision is made if it is new, raised if it is back."""
        data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
        digest = pod_templates.digest(data)
        name = f"{owner['metadata']['name']}-{digest}"
        known = self._informer.indexed(BY_OWNER, owner["metadata"]["uid"])
        number = max((each.get("revision", 0) for each in known), default=0) + 1
        found = next((each for each in known if each["metadata"]["name"] == name), None)
        namespace = owner["metadata"]["namespace"]
        if found is None:
            body = {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": {**_labels(owner), self._label: digest},
                    "annotations": dict(owner["metadata"].get("annotations") or {}),
                    "ownerReferences": [pod_templates.owner_reference(self._kind, owner)],
                },
                "data": data,
                "revision": number,
            }
            try:
                await self._client.create(CONTROLLER_REVISIONS, body, namespace=namespace)
            except errors.AlreadyExists:
                return digest
        elif found.get("revision", 0) < number - 1:
            await self._client.patch(CONTROLLER_REVISIONS, name, {"revision": number}, namespace=namespace)
        return digest

    def template(self, owner: Json, digest: str) -> Json | None:
        """The template that a hash stands for, if it is still known."""
        for each in self._informer.indexed(BY_OWNER, owner["metadata"]["uid"]):
            if (each["metadata"].get("labels") or {}).get(self._label) == digest:
                template = dict(each["data"]["spec"]["template"])
                template.pop("$patch", None)
                return template
        return None

    async def forget(self, owner: Json, used: set[str]) -> None:
        """Keep as many unused revisions as the owner wants."""
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        known = self._informer.indexed(BY_OWNER, owner["metadata"]["uid"])
        idle = [each for each in known if (each["metadata"].get("labels") or {}).get(self._label) not in used]
        idle.sort(key=lambda each: each.get("revision", 0))
        for each in idle[: max(0, len(idle) - limit)]:
            meta = each["metadata"]
            try:
                await self._client.delete(CONTROLLER_REVISIONS, meta["name"], namespace=meta["namespace"])
            except errors.NotFound:
                continue


def _labels(owner: Json) -> dict[str, str]:
    return (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
