"""Turns our webhooks off while managementState is Removed, and on again.

The operator may neither create nor delete webhook configurations: whoever can create one can read and change every
object of the cluster. So it adds to each webhook a match condition that is never true, under its own field manager,
and removes it again. An admission policy allows it this change and no other.
"""

from __future__ import annotations

import logging
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client

CONDITION = "is-managed"

log = logging.getLogger(__name__)


class AdmissionSwitch:
    def __init__(self, client: Client, installation: Installation) -> None:
        self._client = client
        self._configurations = (
            (kinds.MUTATING_WEBHOOKS, installation.slice_configuration),
            (kinds.VALIDATING_WEBHOOKS, installation.guard_configuration),
        )

    async def turn(self, *, on: bool) -> None:
        """Safe to repeat; configurations that do not exist are skipped."""
        for kind, name in self._configurations:
            try:
                await self._turn(kind, name, on=on)
            except errors.NotFound:
                continue

    async def _turn(self, kind: Kind, name: str, *, on: bool) -> None:
        webhooks = (await self._client.get(kind, name)).get("webhooks") or []
        if all(_is_on(webhook) == on for webhook in webhooks):
            return
        entry = {"matchConditions": [{"name": CONDITION, "expression": "false"}]}
        body: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        if not on:
            body["webhooks"] = [{"name": webhook["name"], **entry} for webhook in webhooks]
        await self._client.apply(kind, body, field_manager=names.OPERATOR_FIELD_MANAGER)
        log.info("turned %s %s %s", kind.kind, name, "on" if on else "off")


def _is_on(webhook: dict[str, Any]) -> bool:
    return all(condition["name"] != CONDITION for condition in webhook.get("matchConditions") or ())
