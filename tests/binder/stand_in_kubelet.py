"""Kubelets and the garbage collector, as far as a binder can see them.

A reservation pod gets the next free GPU of its node and says so, as `apportion reserve` does. A pod with a share runs
once it is bound, with what its ConfigMap says. What must never happen is noted in `problems`: more memory in use than a
GPU has, a pod that runs on a GPU that no reservation holds.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import CDI_GPU, config_map_name, shared_gpus_of
from apportion.apis.shares import read_share
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue

RESERVATIONS = names.RESERVATION_NAMESPACE
Key = tuple[str, str]

COLLECT_SECONDS = 0.1


class StandInKubelet:
    """Of all nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.memory: dict[str, int] = {}  # of each GPU
        self.devices: dict[str, list[str]] = {}  # of each node, in the order in which they are handed out
        self.held: dict[str, str] = {}  # uid of a reservation pod -> its GPU
        self.running: dict[str, dict[str, int]] = {}  # uid of a pod with a share -> MiB on each GPU
        self.seen: dict[str, dict[str, str]] = {}  # uid of a pod with a share -> its environment
        self.silent: set[str] = set()  # nodes whose kubelet does nothing about reservations
        self.rejecting: set[str] = set()  # nodes whose kubelet rejects reservations
        self.divides_gpus = False  # a GPU that is listed twice can be handed out twice
        self.takes_turns = False  # a GPU that was handed out is the last to be handed out again
        self.ending_seconds = 0.0  # from deletion to the end of a reservation
        self.reservations_may_vanish = False
        self.problems: list[str] = []
        self._pods = Informer(client, kinds.PODS, into=Pod)
        self._queue: WorkQueue[Key] = WorkQueue("kubelet", first_backoff=0.02, longest_backoff=0.2)
        self._gone: set[str] = set()  # uids of pods that were deleted
        self._pods.on_change(self._changed)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run())
                group.create_task(self._queue.run(self._reconcile, 16))
                group.create_task(self._collect())
        finally:
            self._queue.close()

    def wake(self) -> None:
        """After a change of what it does."""
        for pod in self._pods:
            self._queue.add((pod.metadata.namespace, pod.metadata.name))

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._queue.add((new.metadata.namespace, new.metadata.name))
            if new.terminal:
                self._stopped(new)
            return
        assert old is not None
        self._stopped(old)
        self._gone.add(old.metadata.uid)
        self.wake()

    def _stopped(self, pod: Pod) -> None:
        gpu = self.held.pop(pod.uid, None)
        self.running.pop(pod.uid, None)
        users = [uid for uid, gpus in self.running.items() if gpu in gpus]
        if gpu and users and gpu not in self.held.values() and not self.reservations_may_vanish:
            self.problems.append(f"reservation {pod.metadata.name} of {gpu} ended while {users} ran on it")

    async def _reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or not pod.spec.node_name or pod.spec.node_name not in self.devices:
            return None
        reservation = pod.metadata.namespace == RESERVATIONS
        with suppress(errors.NotFound, errors.Conflict):
            if pod.metadata.deleting:
                await asyncio.sleep(self.ending_seconds if reservation else 0)
                meta = pod.metadata
                await self._client.delete(kinds.PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace=0)
            elif pod.terminal:
                return None
            elif reservation:
                await self._reserve(pod)
            elif names.SHARED_GPUS in pod.metadata.annotations and pod.uid not in self.running:
                return await self._start(pod)
        return None

    async def _reserve(self, pod: Pod) -> None:
        node = pod.spec.node_name
        if node in self.silent or pod.metadata.annotations.get(names.RESERVED_GPU):
            return
        if pod.uid not in self.held:
            free = self._free(node)
            if node in self.rejecting or not free:
                await self._status(pod, phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed")
                return
            self.held[pod.uid] = free[0]
            if self.takes_turns:
                self.devices[node].remove(free[0])
                self.devices[node].append(free[0])
        await self._status(pod, phase="Running", startTime=clock.timestamp())
        patch = {"metadata": {"uid": pod.uid, "annotations": {names.RESERVED_GPU: self.held[pod.uid]}}}
        await self._client.patch(kinds.PODS, pod.metadata.name, patch, namespace=RESERVATIONS)

    def _free(self, node: str) -> list[str]:
        held = list(self.held.values())
        if self.divides_gpus:
            return self.devices[node][sum(gpu in self.devices[node] for gpu in held) :]
        return [gpu for gpu in self.devices[node] if gpu not in held]

    async def _start(self, pod: Pod) -> float | None:
        share = read_share(pod)
        assert share is not None
        namespace = pod.metadata.namespace
        try:
            found = await self._client.get(kinds.CONFIG_MAPS, config_map_name(pod, share), namespace=namespace)
        except errors.NotFound:
            self.problems.append(f"pod {pod.metadata.name} was bound without a ConfigMap")
            return 0.5
        if self._pods.get(pod.metadata.name, namespace) is None:
            return None
        self.seen[pod.uid] = found["data"]
        uuids = [name.removeprefix(CDI_GPU) for name in found["data"][names.VISIBLE_DEVICES].split(",")]
        gpus = shared_gpus_of(pod.metadata)
        self.running[pod.uid] = {uuid: gpu.mib for uuid, gpu in zip(uuids, gpus, strict=True)}
        for uuid in uuids:
            self._check(pod, uuid)
        await self._status(pod, phase="Running", startTime=clock.timestamp())
        return None

    def _check(self, pod: Pod, uuid: str) -> None:
        used = sum(gpus.get(uuid, 0) for gpus in self.running.values())
        if used > self.memory[uuid]:
            self.problems.append(
                f"{used} of {self.memory[uuid]} MiB of {uuid} are in use since {pod.metadata.name} runs"
            )
        if uuid not in self.held.values() and not self.reservations_may_vanish:
            self.problems.append(f"pod {pod.metadata.name} runs on {uuid}, which no reservation holds")

    async def _status(self, pod: Pod, **status: Any) -> None:
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        await self._client.patch(kinds.PODS, meta.name, patch, namespace=meta.namespace, subresource="status")

    async def _collect(self) -> None:
        """What belongs to pods that are gone, also if it was created after their end."""
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            for kind in (kinds.BIND_REQUESTS, kinds.CONFIG_MAPS) if self._gone else ():
                with suppress(errors.ClusterError):
                    for item in (await self._client.list(kind, into=Bare)).items:
                        await self._delete_orphan(kind, item)

    async def _delete_orphan(self, kind: kinds.Kind, item: Bare) -> None:
        meta = item.metadata
        if any(reference.uid in self._gone for reference in meta.owner_references):
            with suppress(errors.NotFound, errors.Conflict):
                await self._client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid)
