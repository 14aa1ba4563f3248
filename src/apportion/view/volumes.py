"""PersistentVolumeClaims, volumes and storage classes as facts of the fleet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from apportion.apis import quantity
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
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind
from apportion.core.volumes import Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog, Happened

log = logging.getLogger(__name__)


class Volumes:
    """Feeds volume claims, volumes and storage classes into the fleet's storage."""

    def __init__(self, fleet: Fleet, changes: ChangeLog, assumptions: Assumptions) -> None:
        self._storage = fleet.storage = Storage()
        self._changes = changes
        self._assumptions = assumptions

    def volume_claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        self._set(self._storage.volume_claims, old, new, volume_claim_facts, ObjectKind.VOLUME_CLAIM)

    def volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        self._set(self._storage.volumes, old, new, volume_facts, ObjectKind.VOLUME)

    def storage_class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        self._set(self._storage.classes, old, new, storage_class_facts)

    def _set(
        self,
        table: dict[str, Any],
        old: Any,
        new: Any,
        facts_of: Callable[[Any], Any],
        confirms: ObjectKind | None = None,
    ) -> None:
        key = _key((new or old).metadata)
        before = table.get(key)
        if new is None:
            table.pop(key, None)
        else:
            table[key] = facts_of(new)
        if table.get(key) == before:
            return
        if confirms is not None:
            self._assumptions.shown(confirms, key)
        self._changes.note(Happened.STORAGE_CHANGED)


def volume_claim_facts(claim: PersistentVolumeClaim) -> VolumeClaimFacts:
    spec = claim.spec
    return VolumeClaimFacts(
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


def volume_facts(volume: PersistentVolume) -> VolumeFacts:
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


def storage_class_facts(kind: StorageClass) -> StorageClassFacts:
    return StorageClassFacts(
        provisioner=kind.provisioner,
        waits_for_pod=kind.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER,
        allowed_topologies=tuple(term.selector() for term in kind.allowed_topologies),
    )


def _size(amounts: Quantities) -> int:
    try:
        return quantity.whole(amounts.get(STORAGE, 0))
    except InputError as error:
        log.warning("invalid size of a volume, using 0: %s", error)
        return 0


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
