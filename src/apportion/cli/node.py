"""`apportion node`: the agent of one node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    node_name: Annotated[str, typer.Option(envvar="NODE_NAME", help="The Node that this agent serves.")],
    pod_name: Annotated[str, typer.Option(envvar="POD_NAME", help="The agent's own pod.")] = "",
    pod_namespace: Annotated[str, typer.Option(envvar="POD_NAMESPACE", help="Its namespace.")] = "das-operator",
    pod_uid: Annotated[str, typer.Option(envvar="POD_UID", help="Its uid.")] = "",
    driver: Annotated[str, typer.Option(help="emulated, nvml, or one that another package adds.")] = "emulated",
    kubelet_dir: Annotated[Path, typer.Option(help="The kubelet's folder.")] = Path("/var/lib/kubelet"),
    cdi_dir: Annotated[Path, typer.Option(help="Where CDI files go.")] = Path("/var/run/cdi"),
    state_dir: Annotated[Path, typer.Option(help="What must outlive the agent.")] = Path("/var/lib/apportion"),
    cgroup_dir: Annotated[Path, typer.Option(help="The kernel's cgroup tree.")] = Path("/sys/fs/cgroup"),
    listen: Annotated[str, typer.Option(help="Address of /healthz, /readyz and /metrics.")] = "0.0.0.0:9400",
    namespace: Annotated[str, typer.Option(help="Where claims and NodeAccelerators live.")] = "das-operator",
) -> None:
    """Serve a node's GPUs to its kubelet: make slices for pods, and take them back."""
    from apportion.cluster import process
    from apportion.emulation.gpus import driver as emulated
    from apportion.node import main
    from apportion.node.settings import Settings

    settings = Settings(
        node_name=node_name,
        pod_name=pod_name,
        pod_namespace=pod_namespace,
        pod_uid=pod_uid,
        driver=driver,
        kubelet_dir=kubelet_dir,
        cdi_dir=cdi_dir,
        state_dir=state_dir,
        cgroup_dir=cgroup_dir,
        listen=listen,
        namespace=namespace,
    )
    process.run(lambda: main.run(settings, {"emulated": emulated.open_driver}), name="node")
