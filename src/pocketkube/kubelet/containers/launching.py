"""From a container's spec to a run: what a kubelet and a container runtime do between "start" and "started"."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketkube.kubelet.container_files import ContainerFiles, Mount, absolute
from pocketkube.kubelet.containers import cdi, child_processes, environment
from pocketkube.kubelet.containers.logs import ContainerLog
from pocketkube.kubelet.devices.plugin import PluginError
from pocketkube.kubelet.node_context import NodeContext
from pocketkube.kubelet.pods.volumes import PodVolumes
from pocketkube.kubelet.runtime.processes import ProcessRun
from pocketkube.kubelet.runtime.runs import Launch, Run, StartError
from pocketkube.kubelet.runtime.simulated import SimulatedRun


class NotStartedError(Exception):
    """A start that failed; reason and message go into the container's waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Plan:
    """A container with everything resolved but its output."""

    container_id: str
    argv: list[str]
    env: Mapping[str, str]
    files: ContainerFiles
    process: bool  # it runs as a child process


async def plan(host: NodeContext, pod: Mapping[str, Any], container: Mapping[str, Any], volumes: PodVolumes) -> Plan:
    """Call the device plugins, then resolve variables, mounts and CDI devices, in a kubelet's order."""
    uid = pod["metadata"]["uid"]
    around = environment.Surroundings(pod, host.stored, host.allocatable(), host.api_host, host.api_port)
    try:
        await host.devices.pre_start(uid, container)
        env = environment.environment(container, around)
        mounts = volumes.mounts(container, env)
    except (PluginError, environment.ConfigError) as error:
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
    return _plan(host, container, around, base | env | options.env | edits.env, files)


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


def _plan(
    host: NodeContext,
    container: Mapping[str, Any],
    around: environment.Surroundings,
    env: dict[str, str],
    files: ContainerFiles,
) -> Plan:
    image = host.images.process(container.get("image", ""), around.pod["metadata"]["namespace"])
    if image is None:
        argv = [environment.expand(word, env) for word in host.images.argv(container)]
        return Plan(secrets.token_hex(32), argv, env, files, process=False)
    try:
        argv = child_processes.command_line(image, container, env, files)
        taken = child_processes.variables(image, env, files) | environment.service_variables(around)
    except child_processes.NotAllowedError as error:
        raise NotStartedError("RunContainerError", str(error)) from None
    return Plan(secrets.token_hex(32), argv, taken, files, process=True)


def _hostname(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])
