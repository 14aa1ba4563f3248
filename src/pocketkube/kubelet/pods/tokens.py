"""Service-account tokens for a pod's volumes, from the TokenRequest API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from apportion.apis import kinds
from apportion.cluster.client import Client


class TokenRequests:
    """Asks for tokens that are bound to one pod."""

    def __init__(self, client: Client, pod: Mapping[str, Any], account: str) -> None:
        self._client = client
        self._pod = pod
        self._account = account

    async def __call__(self, source: Mapping[str, Any]) -> str:
        spec: dict[str, Any] = {
            "audiences": [source["audience"]] if source.get("audience") else [],
            "expirationSeconds": source.get("expirationSeconds", 3600),
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": self._pod["name"],
                "uid": self._pod["uid"],
            },
        }
        path = kinds.SERVICE_ACCOUNTS.path(namespace=self._pod["namespace"], name=self._account, subresource="token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = msgspec.json.decode(await self._client.raw("POST", path, body=body))
        return str(answer["status"]["token"])
