"""One container of a pod: started, followed, probed, stopped, started again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apportion.cluster.events import NORMAL, WARNING
from pocketkube.kubelet import confined_paths
from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.containers import images, launching, probes
from pocketkube.kubelet.containers.backoff import BackOff
from pocketkube.kubelet.containers.launching import NotStartedError
from pocketkube.kubelet.containers.logs import ContainerLog, PodLogs
from pocketkube.kubelet.node_context import NodeContext, regarding
from pocketkube.kubelet.pods.container_records import ContainerRecord, PodRecord, Role, Running, Terminated, Waiting
from pocketkube.kubelet.pods.volumes import PodVolumes
from pocketkube.kubelet.runtime.runs import Run

_MESSAGE_LINES, _MESSAGE_CHARACTERS = 80, 2048
_LONGEST_TERMINATION_MESSAGE = 4096
_STATUS_REASONS = {0: "Completed"}
_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff")


@dataclass
class PodContext:
    """What the containers of one pod share. `pod` is the newest object, with our own addresses in its status."""

    host: NodeContext
    pod: dict[str, Any]
    record: PodRecord
    volumes: PodVolumes
    logs: PodLogs
    changed: Callable[[], None]


class PodContainer:
    """A container and its present run."""

    def __init__(self, record: ContainerRecord, context: PodContext) -> None:
        self.record = record
        self._context = context
        self._restart = BackOff(context.host.settings.restart)
        self._retry = BackOff(context.host.settings.retry)
        self._pull_failed = False
        self._run: Run | None = None
        self._files: ContainerFiles | None = None
        self._is_process = False
        self._following: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Try to start; a failure leaves the container waiting with its reason."""
        host, record = self._context.host, self.record
        try:
            self._pull()
            plan = await launching.plan(host, self._context.pod, record.spec, self._context.volumes)
            log = self._context.logs.begin(record.name, record.restarts + (record.ended is not None))
            run = launching.start(host, self._context.pod, plan, log)
        except NotStartedError as error:
            self._not_started(error)
            return
        ended = record.ended
        if ended is not None:
            record.last = ended
            record.restarts += 1
        record.container_id = plan.container_id
        record.state = Running(host.clock.now())
        self._retry = BackOff(host.settings.retry)
        host.cgroups.add(self._context.pod["metadata"]["uid"], plan.container_id, run.pid)
        self._say("Created", f"Created container: {record.name}")
        self._say("Started", f"Started container {record.name}")
        self._run, self._files, self._is_process = run, plan.files, plan.process
        self._following = asyncio.create_task(self._follow(run, log), name=f"follow {record.name}")
        self._probing = asyncio.create_task(self._probe(), name=f"probe {record.name}")

    async def stop(self, grace: float) -> None:
        """End the present run: with SIGTERM, and after `grace` seconds with SIGKILL."""
        if self._run is None or self._following is None:
            return
        if self._stopping is None:
            self._say("Killing", f"Stopping container {self.record.name}")
        await self._end(grace)

    async def kill(self) -> None:
        """Kill the present run without reporting it: the node shuts down."""
        if self._run is not None and self._following is not None:
            self._run.kill()
            await self._following

    async def settled(self) -> None:
        """Wait until the present run has ended, if there is one."""
        if self._following is not None:
            await asyncio.shield(self._following)

    def mark_backing_off(self) -> None:
        """Between two starts: the state says how long."""
        record, meta = self.record, self._context.pod["metadata"]
        if not isinstance(record.state, Terminated):
            return
        where = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        text = f"back-off {_duration(self._restart.waited)} restarting failed container={record.name} pod={where}"
        record.last = record.state
        record.state = Waiting("CrashLoopBackOff", text)
        message = f"Back-off restarting failed container {record.name} in pod {where}"
        self._say("BackOff", message, kind=WARNING)

    # Starting

    def _pull(self) -> None:
        image = self.record.spec.get("image", "")
        problem = images.pull(image).error
        if problem:
            first, self._pull_failed = not self._pull_failed, True
            if first:
                self._say("Pulling", f'Pulling image "{image}"')
                self._say("Failed", f'Failed to pull image "{image}": {problem}', kind=WARNING)
                raise NotStartedError("ErrImagePull", problem)
            self._say("BackOff", f'Back-off pulling image "{image}"')
            raise NotStartedError("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {problem}')
        if self.record.spec.get("imagePullPolicy") == "Always":
            self._say("Pulling", f'Pulling image "{image}"')
            self._say("Pulled", f'Successfully pulled image "{image}" in 1ms (1ms including waiting)')
        else:
            self._say("Pulled", f'Container image "{image}" already present on machine')

    def _not_started(self, error: NotStartedError) -> None:
        record, now = self.record, self._context.host.clock.now()
        self._retry.after_exit(now, now)
        record.not_before = now + max(self._retry.waited, self._retry.settings.initial)
        if isinstance(record.state, Terminated):
            record.last = record.state
        record.state = Waiting(error.reason, error.message)
        text = error.reason if error.reason in _PULL_REASONS else error.message
        self._say("Failed", f"Error: {text}", kind=WARNING)

    # Running

    async def _follow(self, run: Run, log: ContainerLog) -> None:
        record, host = self.record, self._context.host
        started = record.state.started_at if isinstance(record.state, Running) else host.clock.now()
        code = await run.wait()
        if self._probing is not None:
            self._probing.cancel()
        log.close()
        now = host.clock.now()
        record.state = Terminated(
            exit_code=code,
            reason=run.reason or _STATUS_REASONS.get(code, "Error"),
            started_at=started,
            finished_at=now,
            container_id=record.container_id,
            message=self._message(code, log),
        )
        record.ready = record.role is Role.INIT and code == 0
        record.started = False
        record.not_before = self._restart.after_exit(now, now)
        self._run = None
        host.cgroups.remove(self._context.pod["metadata"]["uid"], record.container_id)
        self._context.changed()

    def _message(self, code: int, log: ContainerLog) -> str:
        """The termination message of the container."""
        spec = self.record.spec
        path = spec.get("terminationMessagePath") or "/dev/termination-log"
        if self._files is not None:
            with contextlib.suppress(OSError):
                written = confined_paths.read_bytes(self._files.path(path), _LONGEST_TERMINATION_MESSAGE)
                return written.decode(errors="replace")
        if code and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return log.last_lines(_MESSAGE_LINES, _MESSAGE_CHARACTERS)
        return ""

    async def _probe(self) -> None:
        report = probes.ProbeReport(
            started=self._has_started, ready=self._is_ready, unhealthy=self._unhealthy, kill=self._failed_probe
        )
        spec = self.record.spec if self.record.role is not Role.INIT else {}
        await probes.watch(spec, self._check, self._context.host.clock, report)

    async def _check(self, probe: Mapping[str, Any]) -> str | None:
        if "exec" in probe and self._run is not None:
            code, output = await self._run.execute(list(probe["exec"].get("command") or []))
            return output if code else None
        if not self._is_process:
            return None
        ports = {port["name"]: port["containerPort"] for port in self.record.spec.get("ports") or [] if "name" in port}
        return await self._context.host.checks.check(probe, self._context.record.ip, ports)

    def _has_started(self) -> None:
        if self.record.running and not self.record.started:
            self.record.started = self.record.ever_started = True
            self._context.changed()

    def _is_ready(self, ready: bool) -> None:  # noqa: FBT001  a callback with one obvious meaning
        if self.record.role is Role.INIT or not self.record.running or self.record.ready == ready:
            return
        self.record.ready = ready
        self._context.changed()

    def _unhealthy(self, kind: str, problem: str) -> None:
        self._say("Unhealthy", f"{kind} probe failed: {problem}", kind=WARNING)

    def _failed_probe(self, kind: str) -> None:
        self._say("Killing", f"Container {self.record.name} failed {kind} probe, will be restarted")
        grace = float(self._context.pod["spec"].get("terminationGracePeriodSeconds", 30))
        self._stopping = asyncio.create_task(self._end(grace))

    async def _end(self, grace: float) -> None:
        run, following = self._run, self._following
        if run is None or following is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._before_stop(run)
                run.terminate()
                await asyncio.shield(following)
        if not following.done():
            run.kill()
            await asyncio.shield(following)

    async def _before_stop(self, run: Run) -> None:
        """The preStop hook; its time counts towards the grace period, its failure changes nothing."""
        hook = (self.record.spec.get("lifecycle") or {}).get("preStop") or {}
        if "exec" in hook:
            code, output = await run.execute(list(hook["exec"].get("command") or []))
            if code:
                self._say("FailedPreStopHook", f"PreStopHook failed: exit code {code}: {output}", kind=WARNING)
        elif "sleep" in hook:
            await self._context.host.clock.sleep(float(hook["sleep"].get("seconds", 0)))
        elif "httpGet" in hook:
            await self._check(hook)

    def _say(self, reason: str, message: str, *, kind: str = NORMAL) -> None:
        about = regarding(self._context.pod, self.record.name, init=self.record.role is not Role.APP)
        self._context.host.recorder.record(about, reason, message, type=kind)


def _duration(seconds: float) -> str:
    """A length of time as Go prints it: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"
