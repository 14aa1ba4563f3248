"""ResourceQuotas: their status shows what is allowed and how much of it is used."""

from __future__ import annotations

from apportion.apis.kinds import RESOURCE_QUOTAS
from pocketkube.api.admission.quota_ledger import QuotaLedger
from pocketkube.api.storage.store import Key as StoreKey
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting

_GATHERED_SECONDS = 0.05  # many pods at once are one change of the status


class QuotaStatus(Reconciler):
    name = "quotas"
    component = "resourcequota-controller"

    def __init__(self, control: Control, ledger: QuotaLedger) -> None:
        super().__init__(control)
        self._ledger = ledger

    def subscribe(self) -> None:
        self.follow(RESOURCE_QUOTAS)
        self._ledger.on_change = self._moved

    def _moved(self, key: StoreKey) -> None:
        self.queue.add_after((key.namespace, key.name), _GATHERED_SECONDS)

    async def reconcile(self, key: Key) -> float | None:
        quota = self.informers.of(RESOURCE_QUOTAS).get(key[1], key[0])
        account = self._ledger.find(*key)
        if quota is None or account is None or deleting(quota):
            return None
        before, wanted = quota.get("status") or {}, {"hard": account.hard, "used": account.used()}
        if any(before.get(name) != amounts for name, amounts in wanted.items()):
            await self.set_status(
                RESOURCE_QUOTAS, quota, {name: _replacing(before.get(name) or {}, wanted[name]) for name in wanted}
            )
        return None


def _replacing(before: Json, after: Json) -> Json:
    """A merge patch that leaves nothing of the old amounts."""
    return dict.fromkeys(before.keys() - after.keys()) | after
