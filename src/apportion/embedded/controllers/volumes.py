"""PersistentVolumeClaims: bound to a volume that fits, or to one that is made for them.

The volumes are folders of the embedded cluster, so every storage class provisions. A class that waits for its first
consumer waits here too, until a pod with the claim has a node.
"""

from __future__ import annotations

from apportion.apis import quantity
from apportion.apis.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from apportion.cluster import errors
from apportion.embedded.controllers.control import Control, Json, Key, Reconciler, deleting
from apportion.embedded.controllers.expectations import Expectations
from apportion.embedded.informers import BY_NAMESPACE

PROVISIONER = "apportion.io/embedded"
_BOUND_BY = "pv.kubernetes.io/bound-by-controller"


class VolumeClaims(Reconciler):
    name = "volumes"
    component = "persistentvolume-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._expectations = Expectations(control.clock)

    def subscribe(self) -> None:
        self.follow(PERSISTENT_VOLUME_CLAIMS)
        self.informers.of(STORAGE_CLASSES)

        def volume_changed(old: Json | None, new: Json | None) -> None:
            volume = new or old
            reference = (volume or {}).get("spec", {}).get("claimRef")
            if reference:
                self.queue.add((reference["namespace"], reference["name"]))

        def pod_changed(_: Json | None, new: Json | None) -> None:
            if new is not None and new["spec"].get("nodeName"):
                for name in _claims_of(new):
                    self.queue.add((new["metadata"]["namespace"], name))

        self.informers.of(PERSISTENT_VOLUMES).on_change(volume_changed)
        self.informers.of(PODS).on_change(pod_changed)

    async def reconcile(self, key: Key) -> float | None:
        claim = self.informers.of(PERSISTENT_VOLUME_CLAIMS).get(key[1], key[0])
        waiting = self._expectations.wait(key)
        if waiting is not None:
            return waiting
        if claim is None:
            await self._release(key)
            return None
        if (claim.get("status") or {}).get("phase") == "Bound" or deleting(claim):
            return None
        if not claim["spec"].get("volumeName") and not self._may_bind(key, claim):
            return None
        volume = self._find(claim) or await self._provision(key, claim)
        await self._bind(key, claim, volume)
        return None

    def _may_bind(self, key: Key, claim: Json) -> bool:
        storage = self.informers.of(STORAGE_CLASSES).get(claim["spec"].get("storageClassName") or "")
        if storage is None or storage.get("volumeBindingMode") != "WaitForFirstConsumer":
            return True
        there = self.informers.of(PODS).indexed(BY_NAMESPACE, key[0])
        return any(key[1] in _claims_of(pod) and pod["spec"].get("nodeName") for pod in there)

    def _find(self, claim: Json) -> Json | None:
        """The smallest volume that fits and is free, or the one that the claim names."""
        volumes = self.informers.of(PERSISTENT_VOLUMES)
        if claim["spec"].get("volumeName"):
            return volumes.get(claim["spec"]["volumeName"])
        fitting = [volume for volume in volumes if _fits(volume, claim)]
        return min(fitting, key=lambda volume: (_size(volume["spec"]["capacity"]), _name(volume)), default=None)

    async def _provision(self, key: Key, claim: Json) -> Json:
        spec, meta = claim["spec"], claim["metadata"]
        body = {
            "metadata": {
                "name": f"pvc-{meta['uid']}",
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            },
            "spec": {
                "capacity": {"storage": (spec.get("resources") or {}).get("requests", {}).get("storage", "1Gi")},
                "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": spec.get("storageClassName") or "",
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "claimRef": _reference(claim),
                "hostPath": {"path": f"/volumes/{meta['namespace']}/{meta['name']}"},
            },
        }
        try:
            made = await self.client.create(PERSISTENT_VOLUMES, body)
        except errors.AlreadyExists:
            return await self.client.get(PERSISTENT_VOLUMES, f"pvc-{meta['uid']}")
        self._expectations.created(key, self.informers.of(PERSISTENT_VOLUMES), made)
        text = f"Successfully provisioned volume {made['metadata']['name']}"
        self.say(PERSISTENT_VOLUME_CLAIMS, claim, "ProvisioningSucceeded", text)
        return made

    async def _bind(self, key: Key, claim: Json, volume: Json) -> None:
        name = _name(volume)
        if (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
            await self.client.patch(PERSISTENT_VOLUMES, name, {"spec": {"claimRef": _reference(claim)}})
        if (volume.get("status") or {}).get("phase") != "Bound":
            status = {"status": {"phase": "Bound"}}
            await self.client.patch(PERSISTENT_VOLUMES, name, status, subresource="status")
        if claim["spec"].get("volumeName") != name:
            annotations = {"pv.kubernetes.io/bind-completed": "yes", _BOUND_BY: "yes"}
            patch: Json = {"metadata": {"annotations": annotations}, "spec": {"volumeName": name}}
            await self.client.patch(PERSISTENT_VOLUME_CLAIMS, key[1], patch, namespace=key[0])
        spec = volume["spec"]
        bound = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec.get("capacity")}
        written = await self.client.patch(
            PERSISTENT_VOLUME_CLAIMS, key[1], {"status": bound}, namespace=key[0], subresource="status"
        )
        self._expectations.written(key, self.informers.of(PERSISTENT_VOLUME_CLAIMS), written)

    async def _release(self, key: Key) -> None:
        """The claim is gone: what was made for it goes too, what was there before is kept for a person to look at."""
        for volume in self.informers.of(PERSISTENT_VOLUMES):
            reference = volume["spec"].get("claimRef") or {}
            if (reference.get("namespace"), reference.get("name")) != key:
                continue
            try:
                if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                    await self.client.delete(PERSISTENT_VOLUMES, _name(volume))
                elif (volume.get("status") or {}).get("phase") != "Released":
                    status = {"status": {"phase": "Released"}}
                    await self.client.patch(PERSISTENT_VOLUMES, _name(volume), status, subresource="status")
            except errors.NotFound:
                continue


def _claims_of(pod: Json) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def _fits(volume: Json, claim: Json) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    reference = spec.get("claimRef")
    if reference and (reference.get("namespace"), reference.get("name")) != (
        claim["metadata"]["namespace"],
        claim["metadata"]["name"],
    ):
        return False
    return (
        (volume.get("status") or {}).get("phase") not in ("Bound", "Released", "Failed")
        and (spec.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and _size(spec.get("capacity") or {}) >= _size((wanted.get("resources") or {}).get("requests") or {})
    )


def _size(amounts: Json) -> int:
    return quantity.whole(amounts.get("storage", "0"))


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _reference(claim: Json) -> Json:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
