"""Pods and their service accounts: which one a pod runs as, and how its token gets into the containers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from pocketkube.api import status
from pocketkube.api.content.pod_defaults import FILE_MODE
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage.store import Bucket, Store, Stored

Obj = dict[str, Any]

TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  a path
ROOT_CA_CONFIG_MAP = "kube-root-ca.crt"
# A little more than an hour, by which a kubelet recognizes a default token.
TOKEN_SECONDS = 3607

_ACCOUNTS = Bucket("", "serviceaccounts")
_DEFAULT = "default"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
# The account of a new namespace is made by a controller and can be a moment late.
_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.02


class ServiceAccountPlugin:
    """The plugin for pods that are created."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._random = random.SystemRandom()

    async def admit(self, attrs: Attributes, pod: Obj) -> None:
        spec = pod["spec"]
        if "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {}):
            return
        name = spec.get("serviceAccountName") or _DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        stored = await self._find(attrs.namespace, name)
        if stored is None:
            why = f"error looking up service account {attrs.namespace}/{name}: serviceaccount {_quoted(name)} not found"
            raise status.forbidden(attrs.resource, attrs.name, why)
        account = stored.decode()
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
        if wanted:
            self._mount(spec)

    async def _find(self, namespace: str, name: str) -> Stored | None:
        waited = 0.0
        while (stored := self._store.get(_ACCOUNTS, namespace, name)) is None:
            if name != _DEFAULT or waited >= _PATIENCE_SECONDS:
                return None
            await asyncio.sleep(_PAUSE_SECONDS)
            waited += _PAUSE_SECONDS
        return stored

    def _mount(self, spec: Obj) -> None:
        volumes = spec.get("volumes") or []
        given = next((each["name"] for each in volumes if each.get("name", "").startswith("kube-api-access-")), None)
        name = given or "kube-api-access-" + "".join(self._random.choices(_ALPHABET, k=5))
        used = False
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            mounts = container.get("volumeMounts") or []
            if all(each.get("mountPath") != TOKEN_FOLDER for each in mounts):
                mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_FOLDER})
                container["volumeMounts"] = mounts
                used = True
        if used and given is None:
            spec["volumes"] = [*volumes, {"name": name, "projected": _projection()}]


def _projection() -> Obj:
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": ROOT_CA_CONFIG_MAP, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
        "defaultMode": FILE_MODE,
    }


def _quoted(text: str) -> str:
    return f'"{text}"'
