"""What every namespace has: the `default` ServiceAccount and the certificate of the API server."""

from __future__ import annotations

from apportion.apis.kinds import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from apportion.cluster import errors
from pocketkube.controllers.controller import Control, Json, Key, Reconciler

ROOT_CA = "kube-root-ca.crt"
DEFAULT = "default"


class ServiceAccounts(Reconciler):
    name = "serviceaccounts"
    component = "serviceaccount-controller"

    def __init__(self, control: Control, ca: str) -> None:
        super().__init__(control)
        self._ca = ca

    def subscribe(self) -> None:
        self.informers.of(NAMESPACES).on_change(lambda _, new: self._look(new))
        for kind, name in ((SERVICE_ACCOUNTS, DEFAULT), (CONFIG_MAPS, ROOT_CA)):
            self._restore(kind.plural, name)

    def _look(self, namespace: Json | None) -> None:
        if namespace is not None:
            self.queue.add(("", namespace["metadata"]["name"]))

    def _restore(self, plural: str, name: str) -> None:
        """Somebody deleted or changed one: it comes back."""
        kind = SERVICE_ACCOUNTS if plural == SERVICE_ACCOUNTS.plural else CONFIG_MAPS

        def changed(old: Json | None, new: Json | None) -> None:
            obj = new or old
            if obj is not None and obj["metadata"]["name"] == name and old is not None:
                self.queue.add(("", obj["metadata"]["namespace"]))

        self.informers.of(kind).on_change(changed)

    async def reconcile(self, key: Key) -> float | None:
        namespace = self.informers.of(NAMESPACES).get(key[1])
        if namespace is None or (namespace.get("status") or {}).get("phase") == "Terminating":
            return None
        meta = {"name": DEFAULT, "namespace": key[1]}
        try:
            if self.informers.of(SERVICE_ACCOUNTS).get(DEFAULT, key[1]) is None:
                await self._create_account(meta)
            await self._publish_ca(key[1])
        except errors.Forbidden:  # the namespace began to end meanwhile
            return None
        return None

    async def _create_account(self, meta: Json) -> None:
        try:
            await self.client.create(SERVICE_ACCOUNTS, {"metadata": meta})
        except errors.AlreadyExists:
            return

    async def _publish_ca(self, namespace: str) -> None:
        data = {"ca.crt": self._ca}
        there = self.informers.of(CONFIG_MAPS).get(ROOT_CA, namespace)
        if there is not None and there.get("data") == data:
            return
        meta = {"name": ROOT_CA, "namespace": namespace}
        try:
            if there is None:
                await self.client.create(CONFIG_MAPS, {"metadata": meta, "data": data})
            else:
                await self.client.patch(CONFIG_MAPS, ROOT_CA, {"data": data}, namespace=namespace)
        except errors.AlreadyExists:
            return
