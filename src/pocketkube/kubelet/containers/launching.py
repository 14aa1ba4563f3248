"""From a container's spec to a run: what a kubelet and a container runtime do between "start" and "started"."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketkube.kubelet import confined_paths
from pocketkube.kubelet.container_files import ContainerFiles, Mount, absolute
from pocketkube.kubelet.containers import cdi, child_processes, environment
from pocketkube.kubelet.containers.logs import ContainerLog
from pocketkube.kubelet.devices.plugin import PluginError
from pocketkube.kubelet.node_context import NodeContext
from pocketkube.kubelet.pods.volumes import PodVolumes
from pocketkube.kubelet.runtime.coroutines import CoroutineRun, Main, OwnPlace
from pocketkube.kubelet.runtime.processes import ProcessRun
from pocketkube.kubelet.runtime.runs import Launch, Run, StartError
from pocketkube.kubelet.runtime.simulated import SimulatedRun

_LONGEST_MESSAGE = 1024  # characters; what a pod names is in it


class NotStartedError(Exception):
    """A start that failed; reason and message go into the container's waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message[:_LONGEST_MESSAGE]


@dataclass(frozen=True)
class Plan:
    """A container with everything resolved but its output."""

    container_id: str
    argv: list[str]
    env: Mapping[str, str]
    files: ContainerFiles
    process: bool = False  # it runs as a child process
    coroutine: Main | None = None  # it runs as this


async def plan(host: NodeContext, pod: Mapping[str, Any], container: Mapping[str, Any], volumes: PodVolumes) -> Plan:
    """Call the device plugins, then resolve variables, mounts and CDI devices, in a kubelet's order."""
    uid = pod["metadata"]["uid"]
    around = environment.Surroundings(pod, host.stored, host.allocatable(), host.api_host, host.api_port)
    try:
        await host.devices.pre_start(uid, container)
        env = environment.environment(container, around)
        mounts = volumes.mounts(container, env)
    except (PluginError, environment.ConfigError, OSError) as error:
        raise NotStartedError("CreateContainerConfigError", str(error)) from None
    options = host.devices.run_options(uid, container["name"])
    try:
        edits = cdi.resolve(host.root, options.cdi)
    except cdi.CdiError as error:
        text = f"failed to generate container spec: {error}"
        raise NotStartedError("CreateContainerError", text) from None
    for host_path, path in (*options.mounts, *edits.mounts):
        mounts[absolute(path)] = on_node(host.root, host_path)
    base = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": _hostname(pod)}
    files = ContainerFiles(scratch_folder(host, pod, container["name"]), mounts)
    variables = base | env | options.env | edits.env
    try:
        return _plan(host, container, around, variables, _with_runtime_files(host, pod, variables, files))
    except (environment.ConfigError, OSError) as error:
        raise NotStartedError("CreateContainerConfigError", str(error)) from None


def start(host: NodeContext, pod: Mapping[str, Any], ready: Plan, log: ContainerLog) -> Run:
    launch = Launch(
        container_id=ready.container_id,
        argv=ready.argv,
        env=ready.env,
        hostname=_hostname(pod),
        files=ready.files,
        log=log,
        annotations=pod["metadata"].get("annotations") or {},
    )
    if ready.coroutine is not None:
        place = OwnPlace(
            pod=pod,
            node=host.node(),
            env=ready.env,
            client=host.client_of(pod),
            clock=host.clock,
            write=log.write,
        )
        return CoroutineRun(ready.container_id, ready.coroutine, place)
    try:
        return ProcessRun.start(launch) if ready.process else SimulatedRun(launch, host.clock, host.sandbox)
    except StartError as error:
        raise NotStartedError("RunContainerError", str(error)) from None


def scratch_folder(host: NodeContext, pod: Mapping[str, Any], container: str) -> Path:
    """Files of a container outside its volumes."""
    return host.pod_folder(pod["metadata"]["uid"]) / "containers" / container


def on_node(root: Path, path: str) -> Mount:
    """A path of the node; what runs as a child process already names it as the machine sees it."""
    for start in (str(root), os.path.realpath(root)):
        if path.startswith(f"{start}/"):
            return Mount(root, path.removeprefix(f"{start}/"))
    return Mount(root, path)


def _with_runtime_files(
    host: NodeContext, pod: Mapping[str, Any], env: Mapping[str, str], files: ContainerFiles
) -> ContainerFiles:
    """With the files that the runtime of this node adds by the variables of a container, instead of what is mounted."""
    added = {absolute(path): text for path, text in host.runtime_files(pod, host.node(), env).items()}
    if not added:
        return files
    kept = {path: mount for path, mount in files.mounts.items() if path not in added}
    with_added = ContainerFiles(files.root, kept)
    files.root.mkdir(parents=True, exist_ok=True)
    for path, text in added.items():
        target = with_added.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with confined_paths.open_to_write(target, append=False) as file:
            file.write(text.encode())
    return with_added


def _plan(
    host: NodeContext,
    container: Mapping[str, Any],
    around: environment.Surroundings,
    env: dict[str, str],
    files: ContainerFiles,
) -> Plan:
    namespace = around.pod["metadata"]["namespace"]
    image = host.images.process(container.get("image", ""), namespace)
    if image is None:
        argv = environment.expand_all(host.images.argv(container), env)
        coroutine = host.images.coroutine(container, namespace)
        return Plan(secrets.token_hex(32), argv, env, files, coroutine=coroutine)
    try:
        argv = child_processes.command_line(image, container, env, files)
        taken = child_processes.variables(image, env, files) | environment.service_variables(around)
    except child_processes.NotAllowedError as error:
        raise NotStartedError("RunContainerError", str(error)) from None
    return Plan(secrets.token_hex(32), argv, taken, files, process=True)


def _hostname(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])
