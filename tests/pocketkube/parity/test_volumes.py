"""Claims find their volumes, and what is in use is not lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import RawRequests, until

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
BOUND_BY = "pv.kubernetes.io/bound-by-controller"
COMPLETED = "pv.kubernetes.io/bind-completed"


class Storage:
    """A namespace's claims, and volumes of a class that nobody else uses."""

    def __init__(self, ask: RawRequests, namespace: str) -> None:
        self._ask = ask
        self.namespace = namespace
        self.kind = f"of-{namespace}"
        self.volume_path = f"{VOLUMES}/v-{namespace}"
        self.claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"

    async def volume(self, **spec: Any) -> Any:
        body = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/none"}}
        spec = {**body, "storageClassName": self.kind, **spec}
        return await self._ask("POST", VOLUMES, {"metadata": {"name": f"v-{self.namespace}"}, "spec": spec})

    async def claim(self, name: str, kind: str | None) -> Any:
        spec: Any = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        if kind is not None:
            spec["storageClassName"] = kind
        return await self._ask("POST", self.claims, {"metadata": {"name": name}, "spec": spec})

    async def until_phase(self, path: str, phase: str) -> Any:
        async def there() -> bool:
            return bool((await self._ask("GET", path)).body.get("status", {}).get("phase") == phase)

        await until(there, f"{path} is {phase}")
        return (await self._ask("GET", path)).body

    async def until_gone(self, path: str) -> None:
        async def gone() -> bool:
            return (await self._ask("GET", path)).code == 404

        await until(gone, f"{path} is gone")

    async def until_event(self, name: str, reason: str, message: str) -> None:
        async def said() -> bool:
            events = (await self._ask("GET", f"/api/v1/namespaces/{self.namespace}/events")).body["items"]
            about = [event for event in events if event["involvedObject"]["name"] == name]
            return (reason, message) in [(event["reason"], event["message"]) for event in about]

        await until(said, f"{name} is told {reason}")


@pytest.fixture
async def storage(ask: RawRequests, namespace: str, pods: str) -> Storage:
    del pods
    return Storage(ask, namespace)


async def test_what_is_in_use_is_kept_until_nobody_needs_it(ask: RawRequests, storage: Storage, pods: str) -> None:
    assert (await storage.volume()).meta["finalizers"] == ["kubernetes.io/pv-protection"]
    free = await storage.until_phase(storage.volume_path, "Available")
    assert "lastPhaseTransitionTime" in free["status"]
    assert (await storage.claim("c", storage.kind)).meta["finalizers"] == ["kubernetes.io/pvc-protection"]
    path = f"{storage.claims}/c"
    claim = await storage.until_phase(path, "Bound")
    assert claim["metadata"]["annotations"] == {COMPLETED: "yes", BOUND_BY: "yes"}
    assert claim["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
    }
    volume = await storage.until_phase(storage.volume_path, "Bound")
    assert volume["metadata"]["annotations"] == {BOUND_BY: "yes"}
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    mount = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    spec = {"nodeName": "absent", "volumes": [mount], "containers": [{"name": "c", "image": "b"}]}
    assert (await ask("POST", pods, {"metadata": {"name": "user"}, "spec": spec})).code == 201
    for used in (path, storage.volume_path):
        await ask("DELETE", used)
        assert "deletionTimestamp" in (await ask("GET", used)).meta
    await ask("DELETE", f"{pods}/user", gracePeriodSeconds="0")
    await storage.until_gone(path)
    await storage.until_gone(storage.volume_path)


async def test_a_volume_outlives_its_claim_if_it_shall_be_retained(ask: RawRequests, storage: Storage) -> None:
    await storage.volume(persistentVolumeReclaimPolicy="Retain")
    await storage.claim("c", storage.kind)
    await storage.until_phase(f"{storage.claims}/c", "Bound")
    await ask("DELETE", f"{storage.claims}/c")
    released = await storage.until_phase(storage.volume_path, "Released")
    assert released["spec"]["claimRef"]["name"] == "c"
    await ask("DELETE", storage.volume_path)
    await storage.until_gone(storage.volume_path)


async def test_a_claim_that_gets_nothing_is_told_why(ask: RawRequests, storage: Storage) -> None:
    waits = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    await ask("POST", CLASSES, {"metadata": {"name": storage.kind}, **waits})
    none = "no persistent volumes available for this claim and no storage class is set"
    cases = {
        "unset": (None, "FailedBinding", none),
        "empty": ("", "FailedBinding", none),
        "absent": ("absent", "ProvisioningFailed", 'storageclass.storage.k8s.io "absent" not found'),
        "waits": (storage.kind, "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
    }
    for name, (kind, reason, message) in cases.items():
        await storage.claim(name, kind)
        await storage.until_event(name, reason, message)
        assert (await ask("GET", f"{storage.claims}/{name}")).body["status"] == {"phase": "Pending"}
    await ask("DELETE", f"{CLASSES}/{storage.kind}")
