"""Namespaces whose quota allows no more pods: what they are promised counts for them alone (T03)."""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.apis import kinds, names, quantity
from apportion.apis.errors import QuantityError
from apportion.apis.meta import ObjectMeta, Wire
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer

_PODS = ("pods", "count/pods")
_DEVICES = (f"requests.{names.NVIDIA_MIG_PREFIX}", f"requests.{names.SLICE_PREFIX}")


class QuotaSpec(Wire):
    hard: dict[str, str | int | float] = {}
    scopes: list[str] = []
    scope_selector: Any = None


class QuotaStatus(Wire):
    used: dict[str, str | int | float] = {}


class ResourceQuota(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: QuotaSpec = msgspec.field(default_factory=QuotaSpec)
    status: QuotaStatus = msgspec.field(default_factory=QuotaStatus)


class Quotas:
    """Follows all quotas."""

    def __init__(self, client: Client) -> None:
        self.informer = Informer(client, kinds.RESOURCE_QUOTAS, into=ResourceQuota)
        self._used_up: dict[str, set[str]] = {}  # namespace -> its quotas that allow no more pods
        self.informer.on_change(self._changed)

    def used_up(self, namespace: str) -> bool:
        return namespace in self._used_up

    def _changed(self, old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        quota = new or old
        assert quota is not None
        namespace, name = quota.metadata.namespace, quota.metadata.name
        listed = self._used_up.setdefault(namespace, set())
        if new is not None and exhausted(new):
            listed.add(name)
        else:
            listed.discard(name)
        if not listed:
            del self._used_up[namespace]


def exhausted(quota: ResourceQuota) -> bool:
    """No more pods, or no more MIG devices. A quota with scopes may not concern the pods in question."""
    spec = quota.spec
    if spec.scopes or spec.scope_selector:
        return False
    counted = [key for key in spec.hard if key in _PODS or key.startswith(_DEVICES)]
    try:
        return any(quantity.parse(quota.status.used.get(key, 0)) >= quantity.parse(spec.hard[key]) for key in counted)
    except QuantityError:
        return False
