"""From a container's spec to a run: what a kubelet and a container runtime do between "start" and "started"."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketkube.kubelet.containers import cdi, environment
from pocketkube.kubelet.containers.images import Images
from pocketkube.kubelet.containers.logs import ContainerLog
from pocketkube.kubelet.devices.plugin import PluginError
from pocketkube.kubelet.node_context import NodeContext
from pocketkube.kubelet.pods.volumes import PodVolumes
from pocketkube.kubelet.runtime.processes import ProcessRun
from pocketkube.kubelet.runtime.runs import Launch, Run, StartError
from pocketkube.kubelet.runtime.simulated import SimulatedRun

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


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
    mounts: Mapping[str, Path]
    process: bool  # it runs as a child process


async def plan(host: NodeContext, pod: Mapping[str, Any], container: Mapping[str, Any], volumes: PodVolumes) -> Plan:
    """Call the device plugins, then resolve variables, mounts and CDI devices, in a kubelet's order."""
    uid = pod["metadata"]["uid"]
    try:
        await host.devices.pre_start(uid, container)
        around = environment.Surroundings(pod, host.stored, host.allocatable(), host.api_host, host.api_port)
        env = environment.environment(container, around)
    except (PluginError, environment.ConfigError) as error:
        raise NotStartedError("CreateContainerConfigError", str(error)) from None
    options = host.devices.run_options(uid, container["name"])
    mounts = volumes.mounts(container, env)
    try:
        edits = cdi.resolve(host.root, options.cdi)
    except cdi.CdiError as error:
        text = f"failed to generate container spec: {error}"
        raise NotStartedError("CreateContainerError", text) from None
    for host_path, path in (*options.mounts, *edits.mounts):
        mounts[path] = _on_host(host.root, host_path)
    base = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": _hostname(pod)}
    env = base | env | options.env | edits.env
    return _plan(container, env, mounts, host.images)


def start(
    host: NodeContext, pod: Mapping[str, Any], container: Mapping[str, Any], ready: Plan, log: ContainerLog
) -> Run:
    launch = Launch(
        container_id=ready.container_id,
        argv=ready.argv,
        env=ready.env,
        hostname=_hostname(pod),
        mounts=ready.mounts,
        scratch=scratch_folder(host, pod, container["name"]),
        log=log,
        annotations=pod["metadata"].get("annotations") or {},
    )
    try:
        return ProcessRun.start(launch) if ready.process else SimulatedRun(launch, host.clock, host.programs)
    except StartError as error:
        raise NotStartedError("RunContainerError", str(error)) from None


def scratch_folder(host: NodeContext, pod: Mapping[str, Any], container: str) -> Path:
    """Files that a simulated container writes outside its volumes."""
    return host.pod_folder(pod["metadata"]["uid"]) / "containers" / container


def _plan(container: Mapping[str, Any], env: dict[str, str], mounts: Mapping[str, Path], images: Images) -> Plan:
    argv = [environment.expand(word, env) for word in images.argv(container)]
    process = images.process(container.get("image", ""))
    if process is not None:
        argv = [*process.command, *(environment.relocate(word, mounts) for word in argv)]
        env = {name: environment.relocate(value, mounts) for name, value in env.items() if name != "PATH"}
        if process.service_account_env and SERVICE_ACCOUNT_PATH in mounts:
            env[process.service_account_env] = str(mounts[SERVICE_ACCOUNT_PATH])
    return Plan(secrets.token_hex(32), argv, env, mounts, process is not None)


def _on_host(root: Path, path: str) -> Path:
    """A path of the node; what runs as a child process already names it as the machine sees it."""
    return Path(path) if Path(path).is_relative_to(root) else root / path.strip("/")


def _hostname(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])
