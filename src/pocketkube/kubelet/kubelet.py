"""One node of the embedded cluster: its object, its devices and a worker for every pod that is bound to it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from pocketkube.api import status as api_status
from pocketkube.api.subresources.logs import LogOptions
from pocketkube.clock import Clock, seconds_of
from pocketkube.kubelet.addresses import Addresses
from pocketkube.kubelet.containers.cgroups import Cgroups
from pocketkube.kubelet.containers.environment import Settings
from pocketkube.kubelet.containers.images import Images
from pocketkube.kubelet.containers.logs import LogSelection
from pocketkube.kubelet.containers.probes import NetworkChecks
from pocketkube.kubelet.devices.node_devices import NodeDevices
from pocketkube.kubelet.node_context import Json, NodeContext
from pocketkube.kubelet.node_object import NodeObject
from pocketkube.kubelet.pods.worker import PodWorker
from pocketkube.kubelet.runtime.runs import RuntimeFiles
from pocketkube.kubelet.sandbox.connection import Sandbox
from pocketkube.kubelet.settings import KubeletSettings
from pocketkube.node_pools import NodePlan

log = logging.getLogger(__name__)

# Folders that a node's system has; pods may mount them from the host
_SKELETON = ("dev", "etc/cdi", "proc", "run/cdi", "sys/fs/cgroup", "tmp", "opt", "usr/bin", "var/lib/kubelet/plugins")


@dataclass(frozen=True)
class Site:
    """What all nodes of a cluster share."""

    root: Path
    client: Client
    client_of: Callable[[Mapping[str, Any]], Client]  # acts as the service account of a pod
    clock: Clock
    settings: KubeletSettings
    addresses: Addresses
    stored: Settings
    images: Images
    sandbox: Sandbox
    runtime_files: RuntimeFiles
    api_host: str
    api_port: int


class Kubelet:
    """Runs the pods of one node. Whoever watches pods calls `pod_changed` for those bound here."""

    def __init__(self, plan: NodePlan, site: Site, *, rng: random.Random | None = None) -> None:
        self.name = plan.name
        self.root = site.root / plan.name
        self._rng = rng
        self._clock = site.clock
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._refreshing: set[asyncio.Task[None]] = set()
        address = site.addresses.for_node()
        lay_out(self.root)
        self.node = NodeObject(plan, address, site.client, site.clock, site.settings)
        self.host = NodeContext(
            name=plan.name,
            address=address,
            root=self.root,
            pods=_private(site.root / ".pods" / plan.name),
            shared=_private(site.root / ".volumes"),
            client=site.client,
            client_of=site.client_of,
            clock=site.clock,
            recorder=Recorder(site.client, "kubelet", host=plan.name, ordered=True),
            settings=site.settings,
            devices=self._make_devices(),
            cgroups=Cgroups(self.root),
            addresses=site.addresses,
            checks=NetworkChecks(),
            stored=site.stored,
            images=site.images,
            sandbox=site.sandbox,
            runtime_files=site.runtime_files,
            node=lambda: self.node.object,
            active=self._active,
            api_host=site.api_host,
            api_port=site.api_port,
        )

    async def start(self) -> None:
        await self.host.devices.start()
        await self.node.register()
        for name, work in (
            ("node", self.node.run()),
            ("events", self.host.recorder.run()),
            ("tokens", self._renew_tokens()),
        ):
            self._background.append(asyncio.create_task(work, name=f"{self.name} {name}"))

    async def stop(self) -> None:
        """End everything on this node at once."""
        workers = list(self._workers.values())
        tasks = [*self._background, *self._tasks.values(), *self._refreshing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(worker.shut_down() for worker in workers))
        await self.host.devices.stop()
        await self.host.checks.close()

    async def restart(self) -> None:
        """As after a restart of a kubelet's process: plugins must come again, containers run on."""
        async with self.host.admitting:
            await self.host.devices.stop()
            self.host.devices = self._make_devices()
            await self.host.devices.start()
            self._devices_changed()

    def pod_changed(self, pod: Json | None, uid: str) -> None:
        """A pod bound to this node came, changed, or (None) went."""
        worker = self._workers.get(uid)
        if pod is None:
            if worker is not None:
                worker.forget()
            return
        if worker is not None:
            worker.update(pod)
            return
        worker = self._workers[uid] = PodWorker(pod, self.host)
        task = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))

    def settings_changed(self, kind: str, namespace: str, name: str) -> None:
        """A ConfigMap or Secret changed: volumes that show it follow."""
        for worker in self._workers.values():
            if worker.pod["metadata"]["namespace"] == namespace:
                self._in_background(worker.refresh_volumes(kind, name))

    async def open_log(self, pod: Json, query: LogOptions) -> AsyncIterator[bytes]:
        """The log of a container, or the Status that a real API server answers."""
        worker = self._workers.get(pod["metadata"]["uid"])
        found = worker.find_log(query.container, previous=query.previous) if worker else None
        name = pod["metadata"]["name"]
        if found is None and query.previous:
            raise api_status.bad_request(f'previous terminated container "{query.container}" in pod "{name}" not found')
        if found is None:
            reason = (worker.waiting_reason(query.container) if worker else "") or "ContainerCreating"
            raise api_status.bad_request(f'container "{query.container}" in pod "{name}" is waiting to start: {reason}')
        return found.read(self._log_selection(query))

    def _log_selection(self, query: LogOptions) -> LogSelection:
        since = None
        if query.since_seconds is not None:
            since = self._clock.now() - query.since_seconds
        elif query.since_time:
            since = seconds_of(query.since_time)
        return LogSelection(
            follow=query.follow,
            previous=query.previous,
            timestamps=query.timestamps,
            tail=query.tail_lines,
            since=since,
            limit_bytes=query.limit_bytes,
        )

    def _make_devices(self) -> NodeDevices:
        folder = self.root / "var/lib/kubelet"
        return NodeDevices(folder, active=self._active, changed=self._devices_changed, rng=self._rng)

    def _active(self) -> list[Json]:
        return [worker.pod for worker in self._workers.values() if worker.active]

    def _devices_changed(self) -> None:
        self.node.set_devices(self.host.devices.totals())

    async def _renew_tokens(self) -> None:
        while True:
            await self._clock.sleep(self.host.settings.token_renewal)
            for worker in list(self._workers.values()):
                await worker.renew_tokens()

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        self._workers.pop(uid, None)
        self._tasks.pop(uid, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("pod %s: its worker failed", uid, exc_info=task.exception())


def _private(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def lay_out(root: Path) -> None:
    """The folders of a new node."""
    for folder in _SKELETON:
        (root / folder).mkdir(parents=True, exist_ok=True)
    run = root / "var/run"
    if not run.is_symlink():
        run.symlink_to("../run")
