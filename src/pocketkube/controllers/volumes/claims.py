"""PersistentVolumeClaims: bound to a volume that fits, or to one that is made for them.

The volumes are folders of the embedded cluster, so every storage class with a provisioner provisions at once. A class
that waits for its first consumer waits here too, until a pod with the claim has a node.
"""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from apportion.cluster import errors
from pocketkube.clock import stamp
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting, key_of
from pocketkube.controllers.volumes import matching as rules
from pocketkube.controllers.workloads.expectations import Expectations
from pocketkube.informers import BY_CLAIM

PROVISIONER = "apportion.io/embedded"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_BOUND_BY = "pv.kubernetes.io/bound-by-controller"
_COMPLETED = "pv.kubernetes.io/bind-completed"
_ASKED = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
_SELECTED_NODE = "volume.kubernetes.io/selected-node"


class VolumeClaims(Reconciler):
    name = "volumes"
    component = "persistentvolume-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._expectations = Expectations(control.clock)

    def subscribe(self) -> None:
        self.follow(PERSISTENT_VOLUME_CLAIMS)

        def volume_changed(old: Json | None, new: Json | None) -> None:
            reference = (new or old or {}).get("spec", {}).get("claimRef")
            if reference:
                self.queue.add((reference["namespace"], reference["name"]))
            if new is not None and rules.phase(new) != "Bound":
                self.queue.add(("", new["metadata"]["name"]))
            if new is not None and not reference:
                self._wake_pending()

        def pod_changed(_: Json | None, new: Json | None) -> None:
            if new is not None and new["spec"].get("nodeName"):
                for name in rules.claims_of(new):
                    self.queue.add((new["metadata"]["namespace"], name))

        self.informers.of(PERSISTENT_VOLUMES).on_change(volume_changed)
        self.informers.of(STORAGE_CLASSES).on_change(lambda _, new: self._wake_pending() if new else None)
        self.informers.of(PODS).on_change(pod_changed)

    def _wake_pending(self) -> None:
        for claim in self.informers.of(PERSISTENT_VOLUME_CLAIMS):
            if rules.phase(claim) == "Pending":
                self.queue.add(key_of(claim))

    async def reconcile(self, key: Key) -> float | None:
        if not key[0]:
            await self._volume(key[1])
            return None
        claim = self.informers.of(PERSISTENT_VOLUME_CLAIMS).get(key[1], key[0])
        waiting = self._expectations.wait(key)
        if waiting is not None:
            return waiting
        if claim is None:
            await self._release(key)
        elif rules.phase(claim) == "Bound":
            await self._check_bound(claim)
        elif not deleting(claim):
            await self._bind_somehow(key, claim)
        return None

    # Volumes by themselves

    async def _volume(self, name: str) -> None:
        volume = self.informers.of(PERSISTENT_VOLUMES).get(name)
        if volume is None or deleting(volume) or rules.phase(volume) not in ("", "Pending"):
            return
        if not (volume["spec"].get("claimRef") or {}).get("uid"):
            await self._set_phase(volume, "Available")

    async def _set_phase(self, volume: Json, phase: str) -> None:
        changed = {"phase": phase, "lastPhaseTransitionTime": stamp(self.clock.now())}
        await self.set_status(PERSISTENT_VOLUMES, volume, changed)

    async def _release(self, key: Key) -> None:
        """The claim is gone: what was made for it goes too, what was there before is kept for a person to look at."""
        for volume in self.informers.of(PERSISTENT_VOLUMES):
            reference = volume["spec"].get("claimRef") or {}
            if (reference.get("namespace"), reference.get("name")) != key or not reference.get("uid"):
                continue
            try:
                if rules.phase(volume) != "Released":
                    await self._set_phase(volume, "Released")
                if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete" and not deleting(volume):
                    await self.client.delete(PERSISTENT_VOLUMES, rules.name(volume))
            except errors.NotFound:
                continue

    # Claims

    async def _check_bound(self, claim: Json) -> None:
        volume = self.informers.of(PERSISTENT_VOLUMES).get(claim["spec"].get("volumeName") or "")
        if volume is None and not deleting(claim):
            await self.set_status(PERSISTENT_VOLUME_CLAIMS, claim, {"phase": "Lost"})
            text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            self.say(PERSISTENT_VOLUME_CLAIMS, claim, "ClaimLost", text, warning=True)

    async def _bind_somehow(self, key: Key, claim: Json) -> None:
        if claim["spec"].get("volumeName"):
            volume = self.informers.of(PERSISTENT_VOLUMES).get(claim["spec"]["volumeName"])
            if volume is not None and rules.may_have(volume, claim):
                await self._bind(key, claim, volume)
            return
        storage = self.informers.of(STORAGE_CLASSES).get(claim["spec"].get("storageClassName") or "")
        reserved = rules.smallest(v for v in self._volumes() if rules.reserved_for(v, claim))
        if reserved is None and storage is not None and not self._has_consumer(key, claim, storage):
            text = "waiting for first consumer to be created before binding"
            self.say(PERSISTENT_VOLUME_CLAIMS, claim, "WaitForFirstConsumer", text)
            return
        volume = reserved or rules.smallest(v for v in self._volumes() if rules.fits(v, claim))
        if volume is None:
            volume = await self._make(key, claim, storage)
        if volume is not None:
            await self._bind(key, claim, volume)

    def _volumes(self) -> Iterable[Json]:
        return self.informers.of(PERSISTENT_VOLUMES)

    def _has_consumer(self, key: Key, claim: Json, storage: Json) -> bool:
        if storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return True
        if (claim["metadata"].get("annotations") or {}).get(_SELECTED_NODE):
            return True
        users = self.informers.of(PODS).indexed(BY_CLAIM, f"{key[0]}/{key[1]}")
        return any(pod["spec"].get("nodeName") for pod in users)

    async def _make(self, key: Key, claim: Json, storage: Json | None) -> Json | None:
        """A new volume, or an event that says why there can be none."""
        wanted = claim["spec"].get("storageClassName")
        if not wanted:
            text = "no persistent volumes available for this claim and no storage class is set"
            self.say(PERSISTENT_VOLUME_CLAIMS, claim, "FailedBinding", text)
        elif storage is None:
            text = f'storageclass.storage.k8s.io "{wanted}" not found'
            self.say(PERSISTENT_VOLUME_CLAIMS, claim, "ProvisioningFailed", text, warning=True)
        elif storage.get("provisioner") != NO_PROVISIONER:
            return await self._provision(key, claim, storage)
        return None

    async def _provision(self, key: Key, claim: Json, storage: Json) -> Json:
        asked = dict.fromkeys(_ASKED, storage["provisioner"])
        patch: Json = {"metadata": {"annotations": asked}}
        await self.client.patch(PERSISTENT_VOLUME_CLAIMS, key[1], patch, namespace=key[0])
        name = f"pvc-{claim['metadata']['uid']}"
        try:
            made = await self.client.create(PERSISTENT_VOLUMES, rules.provisioned(name, claim, storage))
        except errors.AlreadyExists:
            return await self.client.get(PERSISTENT_VOLUMES, name)
        self._expectations.created(key, self.informers.of(PERSISTENT_VOLUMES), made)
        text = f"Successfully provisioned volume {name}"
        self.say(PERSISTENT_VOLUME_CLAIMS, claim, "ProvisioningSucceeded", text)
        return made

    async def _bind(self, key: Key, claim: Json, volume: Json) -> None:
        name = rules.name(volume)
        reference = volume["spec"].get("claimRef") or {}
        if reference.get("uid") != claim["metadata"]["uid"]:
            patch: Json = {"spec": {"claimRef": rules.reference(claim)}}
            if not reference:
                patch["metadata"] = {"annotations": {_BOUND_BY: "yes"}}
            volume = await self.client.patch(PERSISTENT_VOLUMES, name, patch)
        if rules.phase(volume) != "Bound":
            await self._set_phase(volume, "Bound")
        annotations = {_COMPLETED: "yes"}
        if claim["spec"].get("volumeName") != name:
            annotations[_BOUND_BY] = "yes"
        patch = {"metadata": {"annotations": annotations}, "spec": {"volumeName": name}}
        await self.client.patch(PERSISTENT_VOLUME_CLAIMS, key[1], patch, namespace=key[0])
        spec = volume["spec"]
        bound = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec.get("capacity")}
        written = await self.client.patch(
            PERSISTENT_VOLUME_CLAIMS, key[1], {"status": bound}, namespace=key[0], subresource="status"
        )
        self._expectations.written(key, self.informers.of(PERSISTENT_VOLUME_CLAIMS), written)
