"""What fallback sees of the cluster, kept up to date by informers.

Besides the standing it remembers which pods came lately, for the promises: also those that came and went
between two decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from apportion.admission.fallback.promises import Sighting, kind_of
from apportion.admission.fallback.standing import Standing, devices, readable, wants_mig
from apportion.apis import kinds, names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.claims import AllocationClaim
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.core.catalog import Catalog

REMEMBER_SECONDS = 120.0


class Sight:
    """Follows pods, and with them everything that decides where a pod could run."""

    def __init__(
        self,
        client: Client,
        *,
        nodes: Informer[Node],
        namespaces: Informer[Bare],
        accelerators: Informer[NodeAccelerator],
    ) -> None:
        self.standing = Standing(Catalog.shipped())
        self.sightings: dict[str, dict[str, Sighting]] = {}
        self._kinds: dict[str, str] = {}  # pod uid -> kind of its promise
        self._gone: dict[str, float] = {}  # pod uid -> when it went
        self._pods = Informer(client, kinds.PODS, into=Pod)
        self.claims = Informer(client, kinds.ALLOCATION_CLAIMS, into=AllocationClaim, namespace=names.DAS_NAMESPACE)
        self._wake: list[Callable[[], None]] = []
        nodes.on_change(self._tell(self.standing.node_changed))
        namespaces.on_change(self._tell(self.standing.namespace_changed))
        accelerators.on_change(self._tell(self.standing.accelerator_changed))
        self.claims.on_change(self._tell(self.standing.claim_changed))
        self._pods.on_change(self._pod_changed)

    @property
    def informers(self) -> list[Informer[Any]]:
        return [self._pods]

    def synced(self) -> bool | str:
        return self._pods.has_synced or "waiting for pods"

    @property
    def version(self) -> int:
        """How new the view of the pods is."""
        return int(self._pods.version) if self._pods.version.isdecimal() else 0

    def on_change(self, wake: Callable[[], None]) -> None:
        self._wake.append(wake)

    def forget_old(self) -> None:
        """Drop the memory of pods that went long ago."""
        limit = time.monotonic() - REMEMBER_SECONDS
        for uid in [uid for uid, when in self._gone.items() if when < limit]:
            del self._gone[uid]
            kind = self._kinds.pop(uid, "")
            self.sightings.get(kind, {}).pop(uid, None)
            if not self.sightings.get(kind):
                self.sightings.pop(kind, None)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        uid = subject.metadata.uid
        if new is not None and uid not in self._kinds:
            self._sighted(new)
        if new is None and uid in self._kinds:
            self._gone[uid] = time.monotonic()
        self.standing.pod_changed(old, new, uid)
        self._changed()

    def _sighted(self, pod: Pod) -> None:
        request = readable(pod)
        if request is None or not wants_mig(request):
            return
        meta = pod.metadata
        kind = kind_of(meta.namespace, request.owner or "", meta.generate_name or meta.name, devices(request))
        version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
        self._kinds[meta.uid] = kind
        self.sightings.setdefault(kind, {})[meta.uid] = Sighting(version, _seconds(meta.creation_timestamp))

    def _tell(self, listener: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def told(old: Any, new: Any) -> None:
            listener(old, new)
            self._changed()

        return told

    def _changed(self) -> None:
        for wake in self._wake:
            wake()


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
