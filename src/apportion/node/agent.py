"""The agent of one node, put together.

Reads: the kubelet's checkpoint, the driver, its own records, claims, pods and its Node. Writes: slices, CDI
files, claim states, its NodeAccelerator. Plugins are served only after what was found at the start has
been adopted; until then the kubelet has no plugin to call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import partial

from apportion.apis import kinds, names
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import DeviceUUID, PodUID
from apportion.apis.migconfig import FAILED
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster import probes
from apportion.cluster.client import Client
from apportion.cluster.errors import ClusterError
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue
from apportion.node import gpu_users, memory_use, readiness, startup
from apportion.node.annotation_problems import AnnotationProblems
from apportion.node.cluster.accelerator_report import AcceleratorReport
from apportion.node.cluster.accelerator_status import NodeReport
from apportion.node.cluster.claim_store import ClaimStore
from apportion.node.cluster.layout_label import LayoutStateLabel
from apportion.node.cluster.pod_watch import PodWatch
from apportion.node.container import runtime_config
from apportion.node.container.cdi import CdiFolder
from apportion.node.container.cgroups import Cgroups, pod_of_process
from apportion.node.container.last_container import LastContainer
from apportion.node.container.preparation import Preparation
from apportion.node.container.release import Release
from apportion.node.container.runtime_config import RuntimeReport
from apportion.node.gpu_inventory import GpuInventory
from apportion.node.hardware import partitioner
from apportion.node.hardware.claim_placement import ClaimPlacement
from apportion.node.hardware.layouts import Layouts
from apportion.node.hardware.partitioner import (
    HasDevices,
    Measures,
    MountsFiles,
    Partitioner,
    PartitionError,
    ReadsAnnotations,
    Slice,
)
from apportion.node.hardware.slice_records import SliceRecords
from apportion.node.hardware.slicing import Slicing
from apportion.node.kubelet.allocations import Allocations
from apportion.node.kubelet.device_holders import DeviceHolders, names_existing_devices
from apportion.node.kubelet.existing_devices import ExistingDevices
from apportion.node.kubelet.plugins import Plugins
from apportion.node.kubelet.registration import Registrar
from apportion.node.locks import Locks
from apportion.node.memory_use import MemoryUse, Use
from apportion.node.metrics import Metrics
from apportion.node.readiness import NodeChecks, Readiness
from apportion.node.settings import Settings
from apportion.node.single_agent import single_agent

COMPONENT = "apportion-node"
WORKERS = 64  # they wait for GPUs far more than they work; a GPU that hangs must not hold up the others
FAREWELL_SECONDS = 2.0

log = logging.getLogger(__name__)


class Agent:
    def __init__(self, settings: Settings, client: Client, driver: Partitioner) -> None:
        self.settings = settings
        self.driver = driver
        self.address = ""
        self.metrics = Metrics()
        self._wake = asyncio.Event()
        self._checks = NodeChecks((settings.state_dir, settings.cdi_dir))
        self._recorder = Recorder(client, COMPONENT, host=settings.node_name)
        self._node = Informer(client, kinds.NODES, into=Node, fields=f"metadata.name={settings.node_name}")
        self._store = ClaimStore(client, settings.node_name, settings.installation.namespace)
        self._pods = PodWatch(client, settings.node_name)
        self._report = AcceleratorReport(client, settings, driver.kind)
        self._state_label = LayoutStateLabel(client, settings.node_name)

        self._locks = locks = Locks()
        cgroups = Cgroups(settings.cgroup_dir)
        allocations = Allocations(settings.plugin_dir)
        last_container = LastContainer(self._pods, self._store, patience=settings.patience_seconds)
        self._records = SliceRecords(settings.state_dir)
        self._slicing = Slicing(driver, self._records, locks)
        self._folder = CdiFolder(settings.cdi_dir, on_remove=partial(partitioner.remove_files, driver))
        self._holders = DeviceHolders(
            allocations,
            self._pods,
            cgroups,
            node=settings.node_name,
            reservation_namespace=settings.installation.reservation_namespace,
        )
        existing = ExistingDevices(
            driver=driver,
            allocations=allocations,
            holders=self._holders,
            last_container=last_container,
            folder=self._folder,
            patience=settings.patience_seconds,
        )
        placement = ClaimPlacement(
            driver=driver,
            store=self._store,
            records=self._records,
            slicing=self._slicing,
            recorder=self._recorder,
            checks=self._checks,
        )
        self._preparation = Preparation(
            driver=driver,
            allocations=allocations,
            store=self._store,
            last_container=last_container,
            slicing=self._slicing,
            placement=placement,
            folder=self._folder,
            locks=locks,
            patience=settings.patience_seconds,
            answer_within=settings.answer_seconds,
        )
        self._release = Release(
            settings=settings,
            store=self._store,
            pods=self._pods,
            slicing=self._slicing,
            records=self._records,
            folder=self._folder,
            cgroups=cgroups,
            locks=locks,
            recorder=self._recorder,
        )
        self._registrar = Registrar(settings.plugin_dir, poll_seconds=settings.poll_seconds)
        self._inventory = GpuInventory(
            driver,
            self._registrar,
            allocations,
            self._holders,
            Layouts(driver, self._holders, locks, self._store, self._records),
            Plugins(self._preparation, existing, self.metrics, self._wake),
        )
        self._memory_use = MemoryUse(self.metrics, self._recorder)
        self._annotation_problems = AnnotationProblems(self._recorder)
        self._uses: Sequence[Use] = ()
        self._queue: WorkQueue[PodUID] = WorkQueue("release", longest_backoff=settings.sweep_seconds)
        self._adopted = False
        self._waits = ""
        self._foreign: Sequence[Slice] = ()
        self._runtime: RuntimeReport | None = None
        self.metrics.count_slices(lambda: len(self._records))

    # Start and end

    async def run(self) -> None:
        """Work until cancelled."""
        ready = {"agent": lambda: self.readiness.ready or self.readiness.message}
        async with (
            probes.serve(self.settings.listen, ready=ready, registry=self.metrics.registry) as self.address,
            single_agent(self.settings.state_dir, self._wait),
        ):
            try:
                async with asyncio.TaskGroup() as group:
                    for work in (self._node, self._store.informer, self._pods.informer, self._report.informer):
                        group.create_task(work.run())
                    group.create_task(self._recorder.run())
                    await self._begin()
                    group.create_task(self._queue.run(self._release.reconcile, WORKERS))
                    group.create_task(self._serve())
                    group.create_task(self._sweep())
            finally:
                await self._end()

    @property
    def readiness(self) -> Readiness:
        if self._waits:
            return Readiness(ready=False, reason="Waiting", message=self._waits)
        if self._checks.failure is not None:
            return self._checks.failure
        fault = self._inventory.fault
        if fault is not None:
            return Readiness(ready=False, reason=fault.reason, message=str(fault))
        if not self._adopted:
            return readiness.STARTING
        return readiness.READY if self._registrar.complete else readiness.UNREGISTERED

    def _wait(self, why: str) -> None:
        self._waits = why

    async def _begin(self) -> None:
        for informer in (self._node, self._store.informer, self._pods.informer, self._report.informer):
            await informer.synced()
        while not await self._adopt():
            await self._publish()
            await asyncio.sleep(self.settings.sweep_seconds)
        self._adopted = True
        self._store.on_change(self._claim_changed)
        self._pods.informer.on_change(self._pod_changed)
        self._node.on_change(lambda _old, _new: self._wake.set())
        self._report.informer.on_change(lambda _old, _new: self._wake.set())

    async def _adopt(self) -> bool:
        self._checks.run(self._pods.informer.items())
        if self._checks.folder is not None:
            return False
        self._records.load()
        self._folder.load()
        await self._look_at_hardware()
        if self._inventory.fault is None:
            try:
                await startup.adopt(self.driver, self._records, self._store)
                self._foreign = await self._slicing.foreign()
            except PartitionError as error:
                self._inventory.fault = error
        return self._inventory.fault is None

    async def _serve(self) -> None:
        try:
            await self._registrar.run()
        finally:
            # First the scheduler stops sending pods, then the kubelet loses its plugins.
            try:
                await self._farewell()
            finally:
                await self._registrar.stop()

    async def _farewell(self) -> None:
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._report.retire()
        except (ClusterError, TimeoutError) as error:
            log.debug("the NodeAccelerator could not be set to not ready: %s", error)

    async def _end(self) -> None:
        self._queue.close()
        await self._preparation.close()
        await self.driver.close()

    # Periodic checks

    async def _sweep(self) -> None:
        """Check everything periodically and after changes; report readiness as soon as it changes."""
        loop = asyncio.get_running_loop()
        due = 0.0
        published: Readiness | None = None
        while True:
            if loop.time() >= due or self._wake.is_set():
                self._wake.clear()
                await self._look()
                published = await self._publish()
                due = loop.time() + self.settings.sweep_seconds
                await asyncio.sleep(self.settings.settle_seconds)  # many changes at once cost one check and one write
            elif self.readiness != published:
                published = await self._publish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.poll_seconds):  # wait_for can swallow a cancellation
                    await self._wake.wait()

    async def _look(self) -> None:
        for uid in self._release.pods():
            self._queue.add(uid)
        await self._look_at_hardware()
        try:
            found = await self._slicing.foreign()
            await self._measure()
        except PartitionError as error:
            log.warning("the slices of this node cannot be listed: %s", error)
            self._uses = ()
            return
        if found and found != self._foreign:
            log.warning(
                "slices that Apportion did not create are left unchanged: %s",
                "; ".join(str(one.place) for one in found),
            )
        self._foreign = found
        self.metrics.foreign.set(len(found))
        await self._update_files()

    async def _measure(self) -> None:
        if not isinstance(self.driver, Measures):
            return
        pods = self._pods.informer.items()
        users = gpu_users.find(pods, self._holders.by_device(), self._store.informer.items())
        if isinstance(self.driver, ReadsAnnotations):
            self._annotation_problems.report((user, self.driver.problem_of(user)) for user in users)
        processes = await self.driver.processes(users)
        self.metrics.measure(processes)
        self._uses = memory_use.of_pods(users, processes, pod_of_process)
        self._memory_use.report(self._uses)

    async def _update_files(self) -> None:
        if not isinstance(self.driver, MountsFiles):
            return
        try:
            await self.driver.update_files(
                {DeviceUUID(each) for holding in self._holders.live() for each in holding.ids}
            )
        except (PartitionError, OSError) as error:
            log.warning("cannot update nvidia-smi of this node: %s", error)

    async def _look_at_hardware(self) -> None:
        self._checks.run(self._pods.informer.items())
        self._runtime = self._check_runtime()
        await self._inventory.look(self._annotations(), offer=self._checks.plugin is None)

    def _check_runtime(self) -> RuntimeReport | None:
        """Emulated GPUs have no files that a runtime would have to give to containers."""
        found = runtime_config.check(self.settings.host_root) if isinstance(self.driver, HasDevices) else None
        if found is not None and found.status != "True" and found != self._runtime:
            log.warning("container runtime: %s", found.message)
        return found

    async def _publish(self) -> Readiness | None:
        """Returns what was published; None if that failed."""
        now = self.readiness
        self.metrics.ready.set(now.ready)
        node = self._node.get(self.settings.node_name)
        try:
            state = NodeReport(
                self._inventory.gpus,
                now,
                self._foreign,
                self._holders.by_device(),
                unclaimed=self._release.unclaimed(),
                runtime=self._runtime,
                uses=self._uses,
            )
            await self._report.publish(state, node.metadata.uid if node else "")
        except ClusterError as error:
            log.warning("the NodeAccelerator cannot be written: %s", error)
            return None
        layouts = self._inventory.layouts
        await self._state_label.show(layouts.state, node.metadata.labels if node else {})
        if layouts.state == FAILED:
            about = Regarding.node(self.settings.node_name)
            self._recorder.warn(about, "MigConfigRefused", layouts.problem)
        return now

    def _annotations(self) -> dict[str, str] | None:
        node = self._node.get(self.settings.node_name)
        return node.metadata.annotations if node else None

    def _claim_changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        # A new claim has nothing to release: its pod is not even bound yet, unless it was created again.
        claim = new or old
        if claim is not None and (new is None or new.metadata.deleting or self._release.is_restored(new)):
            self._queue.add(claim.pod_uid)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        if readiness.is_device_plugin(pod):
            self._wake.set()
        uid = PodUID(pod.metadata.uid)
        if self._store.of_pod(uid) or self._folder.of_pod(uid):
            self._queue.add(uid)
        if _holds_devices(pod) and (new is None or old is None or new.status.phase != old.status.phase):
            self._wake.set()  # holders, memory in use, what nvidia-smi shows, and GPUs whose layout will change


def _holds_devices(pod: Pod) -> bool:
    return names.SHARED_GPUS in pod.metadata.annotations or any(
        names_existing_devices(name)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for name in container.resources.limits
    )
