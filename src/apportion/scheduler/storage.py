"""What the fleet knows about volumes: claims, volumes and classes as informers show them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from apportion.apis import kinds, quantity
from apportion.apis.errors import InputError
from apportion.apis.meta import ObjectMeta
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
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind, ObjectRef
from apportion.core.volumes import ClaimFacts, ClassFacts, Storage, VolumeFacts

log = logging.getLogger(__name__)


class StorageMirror:
    """Follows claims, volumes and classes. Pods without claims never need it."""

    def __init__(self, client: Client, fleet: Fleet, on_change: Callable[[ObjectRef | None], None]) -> None:
        self._fleet = fleet
        self._on_change = on_change
        self._storage = fleet.storage = Storage()
        self.claims = Informer(client, kinds.PERSISTENT_VOLUME_CLAIMS, into=PersistentVolumeClaim)
        self.volumes = Informer(client, kinds.PERSISTENT_VOLUMES, into=PersistentVolume)
        self.classes = Informer(client, kinds.STORAGE_CLASSES, into=StorageClass)
        self.claims.on_change(self._claim_changed)
        self.volumes.on_change(self._volume_changed)
        self.classes.on_change(self._class_changed)

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        self._set(self._storage.claims, old, new, _claim_facts, ObjectKind.VOLUME_CLAIM)

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        self._set(self._storage.volumes, old, new, _volume_facts, ObjectKind.VOLUME)

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        self._set(self._storage.classes, old, new, _class_facts, None)

    def _set(
        self, table: dict[str, Any], old: Any, new: Any, facts_of: Callable[[Any], Any], kind: ObjectKind | None
    ) -> None:
        key = _key((new or old).metadata)
        before = table.get(key)
        if new is None:
            table.pop(key, None)
        else:
            table[key] = facts_of(new)
        if table.get(key) != before:
            self._on_change(ObjectRef(kind, key) if kind is not None else None)


def _claim_facts(claim: PersistentVolumeClaim) -> ClaimFacts:
    spec = claim.spec
    return ClaimFacts(
        volume=spec.volume_name,
        selected_node=claim.metadata.annotations.get(SELECTED_NODE, ""),
        storage_class=spec.storage_class_name,
        access_modes=tuple(spec.access_modes),
        volume_mode=spec.volume_mode,
        size=_size(spec.resources.requests),
        selector=spec.selector,
        deleting=claim.metadata.deleting,
        uid=claim.metadata.uid,
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
        version=volume.metadata.resource_version,
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
