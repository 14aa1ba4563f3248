"""What must be written before a pod with unbound volumes is bound.

A claim whose class waits for the first consumer is provisioned, or tied to a ready-made volume, only
after a scheduler has chosen the node: an annotation on the claim, or a reservation on the volume. The
volume controller then binds the two while the kubelet waits for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from apportion.apis import kinds
from apportion.apis.kinds import Kind
from apportion.apis.request import Request
from apportion.apis.volumes import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from apportion.cluster.informer import Informer
from apportion.core.filters.storage import volumes_for
from apportion.core.fleet import Fleet


class Step(NamedTuple):
    """One patch that must be on the server before the binding."""

    kind: Kind
    name: str
    namespace: str | None
    patch: dict[str, Any]


class VolumeSteps:
    """Pods without claims never need it."""

    def __init__(
        self, fleet: Fleet, claims: Informer[PersistentVolumeClaim], volumes: Informer[PersistentVolume]
    ) -> None:
        self._fleet = fleet
        self._claims, self._volumes = claims, volumes

    def of(self, request: Request, node: str) -> list[Step]:
        """What has to be written for the pod's unbound claims once it goes to this node."""
        state, storage = self._fleet.nodes.get(node), self._fleet.storage
        if not request.rules.claims or storage is None or state is None or state.facts is None:
            return []
        chosen = volumes_for(storage, request, state.facts)
        return [self._step(request.namespace, claim, volume, node) for claim, volume in chosen.items()]

    def _step(self, namespace: str, name: str, volume: str | None, node: str) -> Step:
        if volume is None:
            patch: dict[str, Any] = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            return Step(kinds.PERSISTENT_VOLUME_CLAIMS, name, namespace, patch)
        claim, target = self._claims.get(name, namespace), self._volumes.get(volume)
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        if claim is not None:
            reference["uid"] = claim.metadata.uid
        patch = {"spec": {"claimRef": reference}}
        if target is not None:
            patch["metadata"] = {"resourceVersion": target.metadata.resource_version}
        return Step(kinds.PERSISTENT_VOLUMES, volume, None, patch)
