"""Light nodes: thousands in one process, without sockets, folders or child processes.

A pod bound to one runs at once and reports it with a single write. It ends when its annotation or a plain `sleep N`
says so, and goes when it is deleted. There are no logs, probes, volumes or devices. Images that run as coroutines do
so here, too.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.workqueue import WorkQueue
from pocketkube import pod_status
from pocketkube.api import status as api_status
from pocketkube.api.subresources.logs import LogOptions
from pocketkube.kubelet import pod_annotations
from pocketkube.kubelet.containers.images import Images
from pocketkube.kubelet.kubelet import Site
from pocketkube.kubelet.node_object import NodeObject
from pocketkube.kubelet.pods import admission, status
from pocketkube.kubelet.pods.container_records import PodRecord, Role, Running, Terminated, records_of
from pocketkube.kubelet.runtime.coroutines import CoroutineRun, OwnPlace
from pocketkube.kubelet.shell import durations
from pocketkube.node_pools import NodePlan

Json = dict[str, Any]
WORKERS = 16
KILLED = 137
TERMINAL = ("Succeeded", "Failed")
HEARTBEAT_SECONDS = 40.0  # thousands of leases every ten seconds would be most of the load


@dataclass
class _LightPod:
    pod: Json
    node: LightKubelet
    record: PodRecord | None = None
    ends: asyncio.TimerHandle | None = None
    coroutine: CoroutineRun | None = None
    due: bool = False  # its time is over
    over: bool = False

    def stop(self) -> None:
        if self.ends is not None:
            self.ends.cancel()
        if self.coroutine is not None:
            self.coroutine.kill()


class LightPods:
    """The pods of all light nodes, worked on from one queue."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._pods: dict[str, _LightPod] = {}
        self._queue: WorkQueue[str] = WorkQueue("light nodes")

    async def run(self) -> None:
        try:
            await self._queue.run(self._work, WORKERS)
        finally:
            self._queue.close()
            for each in self._pods.values():
                each.stop()

    def changed(self, node: LightKubelet, pod: Json | None, uid: str) -> None:
        known = self._pods.get(uid)
        if pod is None:
            self._forget(uid)
        elif known is None:
            self._pods[uid] = _LightPod(pod, node)
            self._queue.add(uid)
        else:
            known.pod = pod
            if "deletionTimestamp" in pod["metadata"]:
                self._queue.add(uid)

    def _forget(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is None:
            return
        known.stop()
        if known.record is not None and known.record.ip:
            self.site.addresses.give_back(known.record.ip)

    async def _work(self, uid: str) -> None:
        each = self._pods.get(uid)
        if each is None:
            return
        try:
            if "deletionTimestamp" in each.pod["metadata"]:
                await self._remove(uid, each)
            elif (each.pod.get("status") or {}).get("phase") in TERMINAL:
                return
            elif each.record is None:
                await self._begin(uid, each)
            elif each.due and not each.over:
                await self._end(each, _exit_code(each.pod))
        except (errors.NotFound, errors.Conflict):
            return

    async def _begin(self, uid: str, each: _LightPod) -> None:
        now = self.site.clock.now()
        if (rejection := admission.too_large(each.pod)) is not None:
            told = status.rejected_status(rejection.reason, rejection.message, each.pod, now)
            await pod_status.merge(self.site.client, each.pod, told)
            return
        record = each.record = records_of(each.pod, now)
        record.ip, record.host_ip, record.sandbox_ready = self.site.addresses.for_pod(), each.node.address, True
        for container in record.containers.values():
            container.container_id = secrets.token_hex(32)
            if container.role is Role.INIT:
                container.state = Terminated(0, "Completed", now, now, container.container_id)
            else:
                container.state = Running(now)
            container.ready = container.started = container.ever_started = True
        await self._report(each)
        if uid in self._pods:
            each.coroutine = self._coroutine(each)
        seconds = _length(each.pod, self.site.images)
        if seconds is not None:
            each.ends = asyncio.get_running_loop().call_later(seconds, self._is_due, uid)

    def _coroutine(self, each: _LightPod) -> CoroutineRun | None:
        container = each.pod["spec"]["containers"][0]
        main = self.site.images.coroutine(container, each.pod["metadata"]["namespace"])
        if main is None:
            return None
        place = OwnPlace(
            pod=each.pod,
            node=each.node.node.object,
            env={},
            client=self.site.client_of(each.pod),
            clock=self.site.clock,
            write=lambda _: None,
            light=True,
        )
        return CoroutineRun(each.pod["metadata"]["uid"], main, place)

    def _is_due(self, uid: str) -> None:
        if uid in self._pods:
            self._pods[uid].due = True
            self._queue.add(uid)

    async def _remove(self, uid: str, each: _LightPod) -> None:
        """A Job, which keeps its pods by a finalizer, waits for a terminal phase; nobody else does."""
        meta = each.pod["metadata"]
        if meta.get("finalizers") and not each.over and (each.pod.get("status") or {}).get("phase") not in TERMINAL:
            each.record = each.record or records_of(each.pod, self.site.clock.now())
            await self._end(each, KILLED)
        await self.site.client.delete(kinds.PODS, meta["name"], namespace=meta["namespace"], uid=uid, grace=0)

    async def _end(self, each: _LightPod, code: int) -> None:
        assert each.record is not None
        now = self.site.clock.now()
        for container in each.record.of(Role.APP, Role.SIDECAR):
            began = container.state.started_at if isinstance(container.state, Running) else now
            reason = "Error" if code else "Completed"
            container.state = Terminated(code, reason, began, now, container.container_id)
            container.ready = container.started = False
        each.record.sandbox_ready = False
        each.over = True
        await self._report(each, final=True)

    async def _report(self, each: _LightPod, *, final: bool = False) -> None:
        assert each.record is not None
        told = status.pod_status(each.pod, each.record, self.site.clock.now(), final=final)
        await pod_status.merge(self.site.client, each.pod, told)


class LightKubelet:
    """One light node."""

    def __init__(self, plan: NodePlan, pods: LightPods) -> None:
        self.name = plan.name
        self._pods = pods
        self.address = pods.site.addresses.for_node()
        site = pods.site
        self.node = NodeObject(
            plan, self.address, site.client, site.clock, replace(site.settings, heartbeat=HEARTBEAT_SECONDS)
        )
        self._reporting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.node.register()
        self._reporting = asyncio.create_task(self.node.run(), name=f"node {self.name}")

    async def stop(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)

    def pod_changed(self, pod: Json | None, uid: str) -> None:
        self._pods.changed(self, pod, uid)

    def settings_changed(self, kind: str, namespace: str, name: str) -> None:
        """Nothing is mounted here."""

    async def open_log(self, pod: Json, query: LogOptions) -> AsyncIterator[bytes]:
        del query
        raise api_status.bad_request(f'pod "{pod["metadata"]["name"]}" runs on a light node: there are no logs')


def _exit_code(pod: Json) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(pod_annotations.SIMULATED_EXIT_CODE, "0"))


def _length(pod: Json, images: Images) -> float | None:
    """How long a pod runs; None means until it is deleted."""
    annotation = (pod["metadata"].get("annotations") or {}).get(pod_annotations.SIMULATED_SECONDS)
    if annotation is not None:
        return durations.seconds(annotation)
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return None
    argv = images.argv(pod["spec"]["containers"][0])
    return durations.seconds(argv[1]) if argv[:1] == ["sleep"] and len(argv) > 1 else None
