"""Runs one pod on its node, from admission to the last container's end and the object's removal.

One task per pod looks at the records, does the next step, reports the status, and waits for something to happen:
a container that ends, a probe, a newer object, the time of a back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil

import msgspec

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.events import WARNING
from pocketkube import pod_status
from pocketkube.kubelet.containers.backoff import BackOff
from pocketkube.kubelet.containers.container import PodContainer, PodContext
from pocketkube.kubelet.containers.logs import ContainerLog, PodLogs
from pocketkube.kubelet.devices.ledger import AllocationError
from pocketkube.kubelet.node_context import Json, NodeContext, regarding
from pocketkube.kubelet.pods import admission, stages, status
from pocketkube.kubelet.pods.container_records import PodRecord, Role, records_of
from pocketkube.kubelet.pods.tokens import TokenRequests
from pocketkube.kubelet.pods.volumes import MountError, PodVolumes

log = logging.getLogger(__name__)

_PATCH_ATTEMPTS = 5
_RETRY_SECONDS = 0.2
_SETTLING_SECONDS = 0.1  # what a new namespace needs until its ConfigMap with the certificate is there
TERMINAL = ("Succeeded", "Failed")


class PodWorker:
    """Runs one pod; `update` and `gone` tell it of changes to the object."""

    def __init__(self, pod: Json, host: NodeContext) -> None:
        self.uid: str = pod["metadata"]["uid"]
        self.finished = False  # no container runs or will run again
        self.gone = False  # the object is no longer there
        self._host = host
        self._object = pod
        self._wake = asyncio.Event()
        self._published: Json = {}
        meta = pod["metadata"]
        record = records_of(pod, host.clock.now())
        volumes = PodVolumes(
            pod=pod,
            folder=host.pod_folder(self.uid),
            node_root=host.root,
            shared=host.shared,
            settings=host.stored,
            allocatable=host.allocatable(),
            token=TokenRequests(host.client, meta, pod["spec"].get("serviceAccountName") or "default"),
        )
        logs = PodLogs(host.log_folder(pod), host.clock)
        self._context = PodContext(host, dict(pod), record, volumes, logs, self._wake.set)
        self._containers = {name: PodContainer(each, self._context) for name, each in record.containers.items()}

    @property
    def pod(self) -> Json:
        return self._object

    @property
    def active(self) -> bool:
        """Whether the pod counts for the node's resources and devices, as a kubelet sees it."""
        return not self.finished and not self.gone

    def update(self, pod: Json) -> None:
        self._object = pod
        self._context.pod = pod | {"status": (pod.get("status") or {}) | self._addresses()}
        self._context.volumes.pod = self._context.pod
        self._record.resize(pod["spec"])
        self._wake.set()

    def forget(self) -> None:
        """The object is gone; what still runs is ended."""
        self.gone = True
        self._wake.set()

    def find_log(self, container: str, *, previous: bool) -> ContainerLog | None:
        return self._context.logs.find(container, previous=previous)

    def waiting_reason(self, container: str) -> str:
        """Why a container has no log yet."""
        state = self._record.containers[container].state
        return getattr(state, "reason", "")

    async def refresh_volumes(self, kind: str, name: str) -> None:
        """A ConfigMap or Secret changed: running containers see the new content."""
        if not self.finished and self._record.sandbox_ready and self._context.volumes.uses(kind, name):
            with contextlib.suppress(MountError, errors.ClusterError):
                await self._context.volumes.prepare()

    async def renew_tokens(self) -> None:
        if not self.finished and self._record.sandbox_ready:
            with contextlib.suppress(MountError, errors.ClusterError):
                await self._context.volumes.prepare()

    async def run(self) -> None:
        """From admission to the end of the pod."""
        if (self._object.get("status") or {}).get("phase") not in TERMINAL:
            try:
                await self._live()
            except Exception as error:
                log.exception("pod %s: unexpected error", self.uid)
                await self._give_up(error)
        self.finished = True
        while not (self._deleting or self.gone):
            await self._something()
        self._clean_up()
        if not self.gone:
            await self._delete_object()

    async def shut_down(self) -> None:
        """The node goes away: everything ends now and nothing is reported."""
        await asyncio.gather(*(container.kill() for container in self._containers.values()))
        self._clean_up()

    # Lifecycle

    @property
    def _record(self) -> PodRecord:
        return self._context.record

    @property
    def _deleting(self) -> bool:
        return "deletionTimestamp" in self._object["metadata"]

    @property
    def _ending(self) -> bool:
        deadline = self._deadline()
        return self._deleting or self.gone or (deadline is not None and deadline <= self._host.clock.now())

    async def _live(self) -> None:
        if not await self._admit():
            return
        try:
            if await self._set_up():
                await self._run_stages()
            await self._stop_containers()
        finally:
            self._release_address()
        self.finished = True
        await self._publish(final=True)

    async def _give_up(self, error: Exception) -> None:
        """An unexpected error: the pod fails with the reason instead of staying in its state."""
        await asyncio.gather(*(container.kill() for container in self._containers.values()))
        self._record.failure = ("KubeletError", f"{type(error).__name__}: {error}")
        self._warn(*self._record.failure)
        await self._publish(final=True)

    async def _admit(self) -> bool:
        """One pod at a time: devices first, then everything else, as a kubelet does it."""
        rejection: admission.Rejection | None = None
        async with self._host.admitting:
            ending = self._ending
            if not ending:
                rejection = await self._rejection()
            self.finished = ending or rejection is not None
        if ending:
            await self._publish(final=True)  # its Job waits for a terminal phase, though it never starts
        elif rejection is not None:
            self._warn(rejection.reason, rejection.message)
            text = status.rejected_status(rejection.reason, rejection.message, self._object, self._host.clock.now())
            await self._patch_status(text)
        return not self.finished

    async def _rejection(self) -> admission.Rejection | None:
        try:
            await self._host.devices.allocate(self._object)
            others = [pod for pod in self._host.active() if pod["metadata"]["uid"] != self.uid]
            return admission.check(self._object, self._host.node(), others)
        except AllocationError as error:
            return admission.unexpected(error)
        except msgspec.ValidationError as error:
            return admission.Rejection("UnexpectedAdmissionError", str(error))

    async def _set_up(self) -> bool:
        """Volumes, tried until they can be set up or the pod is to end; then an address."""
        record, host = self._record, self._host
        record.host_ip = host.address
        await self._publish()
        retry = BackOff(host.settings.retry)
        while not self._ending:
            try:
                await self._context.volumes.prepare()
            except (MountError, errors.ClusterError, OSError) as error:
                now = host.clock.now()
                first = retry.after_exit(now, now) == now
                if not first:
                    self._warn("FailedMount", str(error))
                await self._something(until=now + (_SETTLING_SECONDS if first else retry.waited))
                continue
            record.ip = host.address if self._object["spec"].get("hostNetwork") else host.addresses.for_pod()
            record.sandbox_ready = True
            self.update(self._object)
            return True
        return False

    async def _run_stages(self) -> None:
        policy = self._object["spec"].get("restartPolicy", "Always")
        while not self._ending:
            step = stages.next_step(self._record, policy, self._host.clock.now())
            for name in step.backing_off:
                self._containers[name].mark_backing_off()
            if step.finished:
                return
            for name in step.stop:
                await self._containers[name].stop(self._grace())
            for name in step.start:
                if self._ending:
                    return
                await self._containers[name].start()
                await asyncio.sleep(0)  # a pod may have hundreds
            await self._publish()
            if step.start or step.stop:
                continue
            await self._something(until=_earliest(step.wake_at, self._deadline()))

    async def _stop_containers(self) -> None:
        """Ordinary containers side by side, then the sidecars, last one first, within one grace period."""
        grace = self._grace()
        if self._deadline_passed():
            self._fail_for_deadline()
        end = self._host.clock.now() + grace
        ordinary = [self._containers[each.name].stop(grace) for each in self._record.of(Role.APP, Role.INIT)]
        await asyncio.gather(*ordinary)
        for each in reversed(self._record.of(Role.SIDECAR)):
            await self._containers[each.name].stop(max(0.0, end - self._host.clock.now()))
        self._record.sandbox_ready = False

    def _grace(self) -> float:
        """Seconds to end in. A pod whose object was removed by force gets what its spec says, never less than one."""
        given = self._object["metadata"].get("deletionGracePeriodSeconds")
        if not given:
            given = self._object["spec"].get("terminationGracePeriodSeconds", 30)
        return max(1.0, float(given))

    # Deadlines of the whole pod

    def _deadline(self) -> float | None:
        seconds = self._object["spec"].get("activeDeadlineSeconds")
        return None if seconds is None else self._record.started_at + float(seconds)

    def _deadline_passed(self) -> bool:
        deadline = self._deadline()
        return deadline is not None and deadline <= self._host.clock.now() and not (self._deleting or self.gone)

    def _fail_for_deadline(self) -> None:
        text = "Pod was active on the node longer than the specified deadline"
        self._record.failure = ("DeadlineExceeded", text)
        self._host.recorder.record(regarding(self._object), "DeadlineExceeded", text)

    # Reporting

    def _addresses(self) -> Json:
        record = self._record
        return {"podIP": record.ip, "hostIP": record.host_ip} if record.ip else {}

    async def _publish(self, *, final: bool = False) -> None:
        await self._patch_status(status.pod_status(self._object, self._record, self._host.clock.now(), final=final))

    async def _patch_status(self, wanted: Json) -> None:
        if wanted == self._published or self.gone:
            return
        meta = self._object["metadata"]
        for _ in range(_PATCH_ATTEMPTS):
            try:
                await pod_status.merge(self._host.client, self._object, wanted)
            except (errors.NotFound, errors.Conflict):
                return
            except errors.ClusterError as error:
                log.warning("status of pod %s/%s: %s", meta["namespace"], meta["name"], error)
                await self._host.clock.sleep(_RETRY_SECONDS)
                continue
            self._published = wanted
            return

    async def _delete_object(self) -> None:
        meta = self._object["metadata"]
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._host.client.delete(kinds.PODS, meta["name"], namespace=meta["namespace"], uid=self.uid, grace=0)

    def _warn(self, reason: str, message: str) -> None:
        self._host.recorder.record(regarding(self._object), reason, message, type=WARNING)

    def _clean_up(self) -> None:
        self._context.logs.close()
        self._context.volumes.remove()
        shutil.rmtree(self._context.logs.folder, ignore_errors=True)

    def _release_address(self) -> None:
        if self._record.ip and self._record.ip != self._host.address:
            self._host.addresses.give_back(self._record.ip)

    async def _something(self, until: float | None = None) -> None:
        """Wait until woken, or until a moment."""
        left = None if until is None else max(0.0, until - self._host.clock.now())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()
        self._wake.clear()


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
