"""A cluster for binder tests: an API server, nodes with GPUs, stand-in kubelets, and BindRequests of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import SharedGpu, groups_of, new_group, shared_gpus_of, sharers_of, slot
from apportion.binder import main
from apportion.binder.settings import Settings
from apportion.cluster import errors
from apportion.cluster.client import Client
from tests.binder.stand_in_kubelet import RESERVATIONS, StandInKubelet
from tests.builders import accelerators, nodes, pods
from tests.scheduler.cluster import ApiCluster, Wire, background, until

KAI = names.KAI_NAMESPACE
OTHER = "other"
NAMESPACES = ("default", OTHER)
MIB = 40960


@dataclass
class SharingCluster:
    """What a test talks to."""

    api: ApiCluster
    kubelet: StandInKubelet
    gpus: dict[str, list[str]] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        return self.api.client

    async def node(
        self, name: str = "n1", *, gpus: int = 2, memory: Sequence[int] = (), reported: bool = True, label: str = ""
    ) -> list[str]:
        """A node with GPUs, of 40 GiB each if nothing else is said; reported by an agent unless that is denied."""
        uuids = accelerators.uuids(name, gpus)
        amounts = list(memory) or [MIB] * gpus
        labels = {names.GPU_MEMORY_LABEL: label} if label else {}
        node = nodes.node(name, labels=labels, resources={names.NVIDIA_GPU: gpus})
        await self.client.create(kinds.NODES, {"metadata": node["metadata"]})
        await self.client.patch(kinds.NODES, name, {"status": node["status"]}, subresource="status")
        if reported:
            listed = [
                accelerators.gpu(uuid, mig=False, memoryMiB=mib) for uuid, mib in zip(uuids, amounts, strict=True)
            ]
            made = accelerators.accelerator(name, listed)
            await self.client.create(kinds.NODE_ACCELERATORS, {key: made[key] for key in ("metadata", "spec")})
            await self.client.patch(
                kinds.NODE_ACCELERATORS,
                name,
                {"status": made["status"]},
                namespace=names.DAS_NAMESPACE,
                subresource="status",
            )
        self.kubelet.memory |= dict(zip(uuids, amounts, strict=True))
        self.kubelet.devices[name] = list(uuids)
        self.gpus[name] = uuids if reported else [slot(NodeName(name), number) for number in range(gpus)]
        return self.gpus[name]

    async def pod(self, name: str, namespace: str = "default", **options: Any) -> Pod:
        """A pod as admission leaves it; half a GPU if nothing else is said."""
        if not {"fraction", "memory"} & set(options):
            options["fraction"] = "0.5"
        prefix = {names.SHARED_GPU_CONFIG_MAP: f"{name}-1234567-shared-gpu"}
        await self.client.create(
            kinds.PODS, pods.our_pod(name, namespace=namespace, annotations=prefix, **options), namespace=namespace
        )
        return await self.get(name, namespace)

    async def request(
        self,
        pod: Pod,
        device: str | Sequence[str],
        *,
        groups: Sequence[str] = (),
        node: str = "n1",
        owner: Pod | None = None,
    ) -> list[str]:
        """What the scheduler writes: new groups, unless those are given that the pod is to join.

        It belongs to the pod, and goes with it, unless another `owner` is given."""
        devices = [device] if isinstance(device, str) else list(device)
        named = list(groups) or [new_group(pod.uid, NodeName(node), DeviceUUID(each)) for each in devices]
        meta = pod.metadata
        reference = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": (owner or pod).uid}
        body = {
            "metadata": {"name": meta.name, "namespace": meta.namespace, "ownerReferences": [reference]},
            "spec": {
                "podName": meta.name,
                "podUID": meta.uid,
                "selectedNode": node,
                "selectedGPUGroups": named,
                "selectedDevices": devices,
                "receivedResourceType": names.FRACTION,
                "receivedGPU": {"count": len(devices), "portion": "0.5", "memoryMiB": MIB // 2},
            },
        }
        await self.client.create(kinds.BIND_REQUESTS, body, namespace=meta.namespace)
        return named

    async def withdraw(self, name: str, namespace: str = "default") -> None:
        """What the scheduler does with a request that failed."""
        with suppress(errors.NotFound):
            await self.client.delete(kinds.BIND_REQUESTS, name, namespace=namespace)

    async def get(self, name: str, namespace: str = "default") -> Pod:
        return await self.client.get(kinds.PODS, name, namespace=namespace, into=Pod)

    async def delete(self, name: str, namespace: str = "default", grace: int = 0) -> None:
        await self.client.delete(kinds.PODS, name, namespace=namespace, grace=grace)

    async def running(self, *names_: str, namespace: str = "default", within: float = 40) -> list[Pod]:
        async def found() -> list[Pod] | None:
            got = [await self.get(name, namespace) for name in names_]
            return got if all(pod.status.phase == "Running" for pod in got) else None

        return await until(found, within=within)

    async def failed(self, name: str, namespace: str = "default", within: float = 40) -> str:
        """Wait until the pod's BindRequest has failed, and say why."""

        async def reason() -> str | None:
            request = await self.client.get(kinds.BIND_REQUESTS, name, namespace=namespace, into=BindRequest)
            return request.status.reason if request.failed else None

        return await until(reason, within=within)

    async def reservations(self) -> list[Pod]:
        return (await self.client.list(kinds.PODS, namespace=RESERVATIONS, into=Pod)).items

    async def listed(self, name: str) -> bool:
        """Whether there is one reservation, with that sharer alone."""
        sharers = [sharers_of(pod.metadata).values() for pod in await self.reservations()]
        return [[sharer.name for sharer in each] for each in sharers] == [[name]]

    async def one_reservation(self, sharers: int) -> Pod:
        """Wait until there is one, with a GPU and so many sharers."""

        async def found() -> Pod | None:
            live = [pod for pod in await self.reservations() if not pod.metadata.deleting]
            right = len(live) == 1 and names.RESERVED_GPU in live[0].metadata.annotations
            return live[0] if right and len(sharers_of(live[0].metadata)) == sharers else None

        return await until(found)

    async def empty(self) -> None:
        """Wait until nothing of sharing is left."""

        left: list[str] = []

        async def nothing() -> bool:
            left.clear()
            for kind in (kinds.BIND_REQUESTS, kinds.CONFIG_MAPS):
                found = [item.metadata for item in (await self.client.list(kind, into=Bare)).items]
                ours = [meta.name for meta in found if meta.namespace in NAMESPACES and meta.name != "kube-root-ca.crt"]
                left.extend(f"{kind.kind} {name}" for name in ours)
            labelled = await self.client.list(kinds.PODS, labels=names.GPU_GROUP_LABEL, into=Bare)
            left.extend(f"Pod {item.metadata.name} {item.metadata.annotations}" for item in labelled.items)
            return not left

        try:
            await until(nothing)
        except AssertionError as error:
            for each in left:
                error.add_note(each)
            raise

    async def events(self, name: str, reason: str, namespace: str = "default") -> list[str]:
        """Wait until there is such an event about a pod, and say its messages."""

        async def found() -> list[str] | None:
            listing = await self.client.list(kinds.EVENTS, namespace=namespace)
            about = [event for event in listing.items if event["involvedObject"]["name"] == name]
            return [event["message"] for event in about if event["reason"] == reason]

        return await until(found)

    async def config(self, **binder: Any) -> None:
        body = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"binder": binder}}
        await self.client.apply(kinds.KAI_CONFIGS, body, field_manager="test")

    async def check(self) -> None:
        """What must be true of every pod that is bound, whatever happened before."""
        assert not self.kubelet.problems, self.kubelet.problems
        reservations = {pod.metadata.labels[names.GPU_GROUP_LABEL]: pod for pod in await self.reservations()}
        used: dict[str, int] = {}
        for pod in (await self.client.list(kinds.PODS, into=Pod)).items:
            gpus: tuple[SharedGpu, ...] = shared_gpus_of(pod.metadata)
            if not gpus or pod.terminal:
                continue
            name = pod.metadata.name
            assert pod.metadata.annotations[names.RECEIVED_RESOURCE_TYPE] == names.FRACTION
            assert sorted(groups_of(pod.metadata)) == sorted(gpu.group for gpu in gpus), name
            devices = self.kubelet.seen[pod.uid][names.VISIBLE_DEVICES].split(",")
            for gpu, device in zip(gpus, devices, strict=True):
                holder = reservations[gpu.group]
                assert pod.uid in sharers_of(holder.metadata), f"{name} is not on {holder.metadata.name}"
                assert holder.metadata.annotations[names.RESERVED_GPU] == device, name
                used[device] = used.get(device, 0) + gpu.mib
        assert all(amount <= self.kubelet.memory[device] for device, amount in used.items()), used

    async def end_lease(self) -> None:
        with suppress(errors.NotFound):
            await self.client.patch(kinds.LEASES, names.BINDER_LEASE, {"spec": {"holderIdentity": ""}}, namespace=KAI)

    async def clear(self) -> None:
        """For the next story on the same cluster; the binder must not be running."""
        for kind in (kinds.PODS, kinds.BIND_REQUESTS, kinds.CONFIG_MAPS, kinds.EVENTS, kinds.KAI_CONFIGS, kinds.LEASES):
            for item in (await self.client.list(kind, into=Bare)).items:
                meta = item.metadata
                if meta.namespace in ("", *NAMESPACES, RESERVATIONS, KAI) and meta.name != "kube-root-ca.crt":
                    with suppress(errors.NotFound):
                        grace = 0 if kind is kinds.PODS else None
                        await self.client.delete(kind, meta.name, namespace=meta.namespace or None, grace=grace)

        async def gone() -> bool:
            return not self.kubelet.held and not self.kubelet.running

        await until(gone)
        self.kubelet.problems.clear()


@asynccontextmanager
async def sharing(api: ApiCluster) -> AsyncIterator[SharingCluster]:
    """The namespaces of sharing, and kubelets on whatever nodes a test makes."""
    for namespace in (KAI, RESERVATIONS, OTHER):
        await api.client.apply(kinds.NAMESPACES, {"metadata": {"name": namespace}}, field_manager="test")
        account = names.RESERVATION_SERVICE_ACCOUNT if namespace == RESERVATIONS else "default"
        with suppress(errors.AlreadyExists):
            await api.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": account, "namespace": namespace}})
    kubelet = StandInKubelet(api.client)
    made = SharingCluster(api, kubelet)
    async with background(kubelet.run()):
        try:
            yield made
        finally:
            await made.clear()


@asynccontextmanager
async def binding(
    cluster: SharingCluster, wire: Wire | None = None, **settings: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """A binder process in miniature; leaving the block is its SIGTERM."""
    options = {"lease_duration": 60.0, "lease_renew_deadline": 50.0, "lease_retry": 0.1, **settings}
    client = Client(wire or cluster.api.wire(), timeout=5)
    async with background(main.run(Settings(probes="127.0.0.1:0", **options), client)) as task:
        yield task


async def bound_or_failed(cluster: SharingCluster, name: str) -> bool:
    """True: bound. False: its request failed or was withdrawn, and after a look at the pod it is not bound."""

    async def decided() -> str | None:
        if (await cluster.get(name)).spec.node_name:
            return "bound"
        try:
            request = await cluster.client.get(kinds.BIND_REQUESTS, name, namespace="default", into=BindRequest)
        except errors.NotFound:
            return "gone"
        return "failed" if request.failed else None

    if await until(decided) == "bound":
        return True
    return bool((await cluster.get(name)).spec.node_name)
