"""New certificates for a running webhook, without a moment in which a caller does not trust them.

A new serving certificate of the same CA can be served immediately. A new CA is first published together with the
old one in every webhook configuration; the serving certificate is replaced after API servers have had time to read
it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Any

from apportion.admission.certificates import credentials
from apportion.admission.certificates.credentials import Credentials, SecretKeeper, Terms, service_names
from apportion.admission.certificates.trust import Caller, publication
from apportion.cluster import errors
from apportion.cluster.client import Client, PatchType

MOST_TRIES = 5
Progress = Callable[[str], None]


class Regeneration:
    """Renews the certificates of one Service, with or without its replicas running."""

    def __init__(
        self, client: Client, callers: Sequence[Caller], *, service: str, namespace: str, secret: str, settle: float
    ) -> None:
        self._client = client
        self._callers = callers
        self._service = {"name": service, "namespace": namespace}
        terms = Terms(service_names(service, namespace))
        self._keeper = SecretKeeper(client, namespace=namespace, name=secret, terms=terms)
        self._settle = settle

    async def keep_authority(self, progress: Progress) -> Credentials:
        made = await self._keeper.change(credentials.regenerated)
        progress(f"issued a new certificate, valid until {made.pair.expires.date()}; the CA is unchanged")
        await self._publish(made.bundle)
        return made

    async def new_authority(self, progress: Progress) -> Credentials:
        announced = await self._keeper.change(credentials.announced)
        await self._publish(announced.bundle)
        progress("published the new CA together with the old one")
        await asyncio.sleep(self._settle)
        made = await self._keeper.change(credentials.regenerated)
        progress(f"issued a certificate signed by the new CA, valid until {made.pair.expires.date()}")
        return made

    async def _publish(self, bundle: bytes) -> None:
        """Replicas do this too; but none may run, and we must know that it is done."""
        for caller in self._callers:
            for tries_left in reversed(range(MOST_TRIES)):
                try:
                    found = await self._client.get(caller.kind, caller.name)
                    operations = publication(found, self._service, bundle)
                    if operations:
                        await self._client.patch(caller.kind, caller.name, operations, how=PatchType.json)
                    break
                except errors.NotFound:
                    break
                except (errors.Conflict, errors.Invalid):  # it was applied again between reading and writing
                    if not tries_left:
                        raise


def with_bundle(configuration: dict[str, Any], bundle: bytes) -> dict[str, Any]:
    """A webhook configuration that contains the bundle when it is applied."""
    text = base64.b64encode(bundle).decode()
    for webhook in configuration.get("webhooks") or []:
        webhook["clientConfig"]["caBundle"] = text
    return configuration
