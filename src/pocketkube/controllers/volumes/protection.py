"""Claims and volumes that are in use stay until nobody needs them: a finalizer holds them."""

from __future__ import annotations

from apportion.apis.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, Kind
from apportion.cluster import errors
from pocketkube.controllers.controller import Json, Key, Reconciler, deleting
from pocketkube.controllers.volumes import matching as rules
from pocketkube.informers import BY_CLAIM

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"


class VolumeProtection(Reconciler):
    name = "volume-protection"
    component = "pvc-protection-controller"

    def subscribe(self) -> None:
        self.follow(PERSISTENT_VOLUME_CLAIMS)
        self.follow(PERSISTENT_VOLUMES)

        def pod_changed(old: Json | None, new: Json | None) -> None:
            if old is not None and new is None:
                for name in rules.claims_of(old):
                    self.queue.add((old["metadata"]["namespace"], name))

        self.informers.of(PODS).on_change(pod_changed)

    async def reconcile(self, key: Key) -> float | None:
        if key[0]:
            claim = self.informers.of(PERSISTENT_VOLUME_CLAIMS).get(key[1], key[0])
            if claim is not None and deleting(claim) and not self._in_use(key):
                await self._let_go(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER)
            return None
        volume = self.informers.of(PERSISTENT_VOLUMES).get(key[1])
        if volume is not None and deleting(volume) and rules.phase(volume) != "Bound":
            await self._let_go(PERSISTENT_VOLUMES, volume, VOLUME_FINALIZER)
        return None

    def _in_use(self, key: Key) -> bool:
        """By a pod that has a node: a kubelet starts none that would use a claim which is being deleted."""
        users = self.informers.of(PODS).indexed(BY_CLAIM, f"{key[0]}/{key[1]}")
        return any(pod["spec"].get("nodeName") for pod in users)

    async def _let_go(self, kind: Kind, obj: Json, finalizer: str) -> None:
        meta = obj["metadata"]
        kept = [each for each in meta.get("finalizers") or () if each != finalizer]
        if len(kept) == len(meta.get("finalizers") or ()):
            return
        patch: Json = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": kept or None}}
        try:
            await self.client.patch(kind, meta["name"], patch, namespace=meta.get("namespace"))
        except errors.NotFound:
            return
        except errors.Conflict:
            self.queue.add_after((meta.get("namespace", ""), meta["name"]), 0.05)
