"""Publishes the CA bundle in the webhook configurations, so that API servers trust the webhook.

The bundle is set in those entries of a configuration that call our Service, and set again when the configuration is
applied without it. Configurations that do not exist are skipped: each one can be deleted separately (D02).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apportion.apis.kinds import Kind
from apportion.cluster.client import Client, PatchType
from apportion.cluster.informer import Informer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """A configuration that makes API servers call us."""

    kind: Kind
    name: str


class Publisher:
    """Keeps one bundle in all our configurations."""

    def __init__(self, client: Client, callers: Sequence[Caller], *, service: str, namespace: str) -> None:
        self._client = client
        self._service = {"name": service, "namespace": namespace}
        self._bundle: bytes | None = None
        self._followed = {
            caller: Informer(client, caller.kind, into=dict, fields=f"metadata.name={caller.name}")
            for caller in callers
        }

    @property
    def informers(self) -> list[Informer[dict[str, Any]]]:
        return list(self._followed.values())

    def on_change(self, wake: Callable[[], None]) -> None:
        for informer in self.informers:
            informer.on_change(lambda _old, _new: wake())

    async def publish(self, bundle: bytes) -> None:
        """Write the bundle where it is missing. A conflict is the caller's to try again."""
        self._bundle = bundle
        for caller, informer in self._followed.items():
            configuration = informer.get(caller.name)
            operations = publication(configuration, self._service, bundle) if configuration else []
            if operations:
                await self._client.patch(caller.kind, caller.name, operations, how=PatchType.json)
                log.info("set caBundle in %s", caller.name)

    def published(self) -> bool | str:
        """True once every configuration that exists carries the bundle; a readiness check."""
        lacking = [
            caller.name
            for caller, informer in self._followed.items()
            if (found := informer.get(caller.name))
            and (self._bundle is None or publication(found, self._service, self._bundle))
        ]
        if lacking:
            return f"caBundle is not set in {', '.join(lacking)}"
        return self._bundle is not None


def publication(configuration: dict[str, Any], service: Mapping[str, str], bundle: bytes) -> list[dict[str, Any]]:
    """The JSON patch that writes a bundle where it is missing; it fails if the entries have moved meanwhile."""
    text = base64.b64encode(bundle).decode()
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(configuration.get("webhooks") or []):
        client_config = webhook.get("clientConfig") or {}
        ours = service.items() <= (client_config.get("service") or {}).items()
        if ours and client_config.get("caBundle") != text:
            at = f"/webhooks/{index}"
            operations.append({"op": "test", "path": f"{at}/name", "value": webhook["name"]})
            operations.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": text})
    return operations
