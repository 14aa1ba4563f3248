"""What the fleet knows about volumes, and what must be written before a pod with unbound ones is bound.

A claim whose class waits for the first consumer is provisioned, or tied to a ready-made volume, only
after a scheduler has chosen the node: an annotation on the claim, or a reservation on the volume. The
volume controller then binds the two while the kubelet waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from apportion.apis import kinds, quantity
from apportion.apis.errors import InputError
from apportion.apis.kinds import Kind
from apportion.apis.meta import ObjectMeta
from apportion.apis.request import Request
from apportion.apis.volumes import (
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    Quantities,
    StorageClass,
)
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.core.filters.storage import volumes_for
from apportion.core.fleet import Fleet
from apportion.core.volumes import ClaimFacts, ClassFacts, Storage, VolumeFacts

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """One patch that must be on the server before the binding."""

    kind: Kind
    name: str
    namespace: str | None
    patch: dict[str, Any]


class StorageMirror:
    """Follows claims, volumes and classes. Pods without claims never need it."""

    def __init__(self, client: Client, fleet: Fleet, on_change: Callable[[], None]) -> None:
        self._fleet = fleet
        self._on_change = on_change
        self._storage = fleet.storage = Storage()
        self.claims = Informer(client, kinds.PERSISTENT_VOLUME_CLAIMS, into=PersistentVolumeClaim)
        self.volumes = Informer(client, kinds.PERSISTENT_VOLUMES, into=PersistentVolume)
        self.classes = Informer(client, kinds.STORAGE_CLASSES, into=StorageClass)
        self.claims.on_change(self._claim_changed)
        self.volumes.on_change(self._volume_changed)
        self.classes.on_change(self._class_changed)

    def steps(self, request: Request, node: str) -> list[Step]:
        """What has to be written for the pod's unbound claims once it goes to this node."""
        state = self._fleet.nodes.get(node)
        if not request.rules.claims or state is None or state.facts is None:
            return []
        chosen = volumes_for(self._storage, request, state.facts)
        return [self._step(request.namespace, claim, volume, node) for claim, volume in chosen.items()]

    def _step(self, namespace: str, name: str, volume: str | None, node: str) -> Step:
        if volume is None:
            patch: dict[str, Any] = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            return Step(kinds.PERSISTENT_VOLUME_CLAIMS, name, namespace, patch)
        claim, target = self.claims.get(name, namespace), self.volumes.get(volume)
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        if claim is not None:
            reference["uid"] = claim.metadata.uid
        patch = {"spec": {"claimRef": reference}}
        if target is not None:
            patch["metadata"] = {"resourceVersion": target.metadata.resource_version}
        return Step(kinds.PERSISTENT_VOLUMES, volume, None, patch)

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        self._set(self._storage.claims, old, new, _claim_facts)

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        self._set(self._storage.volumes, old, new, _volume_facts)

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        self._set(self._storage.classes, old, new, _class_facts)

    def _set(self, table: dict[str, Any], old: Any, new: Any, facts_of: Callable[[Any], Any]) -> None:
        key = _key((new or old).metadata)
        before = table.get(key)
        if new is None:
            table.pop(key, None)
        else:
            table[key] = facts_of(new)
        if table.get(key) != before:
            self._on_change()


def _claim_facts(claim: PersistentVolumeClaim) -> ClaimFacts:
    spec = claim.spec
    return ClaimFacts(
        volume=spec.volume_name,
        storage_class=spec.storage_class_name,
        access_modes=tuple(spec.access_modes),
        volume_mode=spec.volume_mode,
        size=_size(spec.resources.requests),
        selector=spec.selector,
        deleting=claim.metadata.deleting,
    )


def _volume_facts(volume: PersistentVolume) -> VolumeFacts:
    spec = volume.spec
    return VolumeFacts(
        node_affinity=spec.node_affinity.required if spec.node_affinity else None,
        labels=volume.metadata.labels,
        claim=f"{spec.claim_ref.namespace}/{spec.claim_ref.name}" if spec.claim_ref else "",
        storage_class=spec.storage_class_name,
        access_modes=tuple(spec.access_modes),
        volume_mode=spec.volume_mode,
        size=_size(spec.capacity),
        phase=volume.status.phase,
    )


def _class_facts(kind: StorageClass) -> ClassFacts:
    return ClassFacts(
        provisioner=kind.provisioner,
        waits_for_pod=kind.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER,
        allowed_topologies=tuple(term.selector() for term in kind.allowed_topologies),
    )


def _size(amounts: Quantities) -> int:
    try:
        return quantity.whole(amounts.get(STORAGE, 0))
    except InputError as error:
        log.warning("a volume's size counts as 0: %s", error)
        return 0


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
