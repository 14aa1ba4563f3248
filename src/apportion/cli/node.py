"""`apportion node`: the node agent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.installation import NAMESPACE_ENV, Installation
from apportion.cli import connecting, options


def command(
    *,
    node_name: Annotated[
        str, typer.Option(envvar="NODE_NAME", help="Name of the node of this agent.", callback=options.object_name)
    ],
    pod_name: Annotated[str, typer.Option(envvar="POD_NAME", help="Name of the pod of this agent.")] = "",
    pod_namespace: Annotated[
        str,
        typer.Option(envvar="POD_NAMESPACE", help="Namespace of the pod of this agent.", callback=options.namespace),
    ] = Installation.namespace,
    pod_uid: Annotated[str, typer.Option(envvar="POD_UID", help="UID of the pod of this agent.")] = "",
    driver: Annotated[
        str, typer.Option(help="GPU driver: emulated, nvml, or a driver of another package.")
    ] = "emulated",
    kubelet_dir: Annotated[Path, typer.Option(help="Directory of the kubelet.")] = Path("/var/lib/kubelet"),
    cdi_dir: Annotated[Path, typer.Option(help="Directory for CDI files.")] = Path("/var/run/cdi"),
    state_dir: Annotated[Path, typer.Option(help="Directory for state that survives a restart.")] = Path(
        "/var/lib/apportion"
    ),
    cgroup_dir: Annotated[Path, typer.Option(help="Root of the cgroup file system.")] = Path("/sys/fs/cgroup"),
    host_root: Annotated[
        Path, typer.Option(help="Root of the node's file system, to read the configuration of container runtimes.")
    ] = Path("/proc/1/root"),
    listen: Annotated[
        str, typer.Option(help="Address for /healthz, /readyz and /metrics.", callback=options.address)
    ] = "0.0.0.0:9400",
    namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of claims and NodeAccelerators.", envvar=NAMESPACE_ENV, callback=options.namespace
        ),
    ] = Installation.namespace,
    log_level: options.PlaneLogLevel = "Normal",
) -> None:
    """Offer the GPUs of a node to its kubelet: create slices for pods, and destroy them afterwards."""
    from apportion.cluster import process
    from apportion.emulation.gpus import driver as emulated
    from apportion.node import main
    from apportion.node.settings import Settings

    settings = Settings(
        node_name=NodeName(node_name),
        pod_name=pod_name,
        pod_namespace=pod_namespace,
        pod_uid=PodUID(pod_uid),
        driver=driver,
        kubelet_dir=kubelet_dir,
        cdi_dir=cdi_dir,
        state_dir=state_dir,
        cgroup_dir=cgroup_dir,
        host_root=host_root,
        listen=listen,
        installation=connecting.installation(namespace=namespace),
    )
    process.run(lambda: main.run(settings, {"emulated": emulated.open_driver}), name="node", level=log_level)
