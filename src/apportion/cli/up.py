"""`apportion up`: an embedded cluster with emulated GPUs and all planes."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from apportion.cli import background, cluster_files, connecting, contexts, options
from apportion.cluster import allocator

if TYPE_CHECKING:
    from apportion.emulation.cluster.topology import Topology
    from pocketkube.cluster import EmbeddedCluster
    from pocketkube.kubelet.settings import KubeletSettings

BAD_INPUT, FAILURE = 2, 1


def up(
    *,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return when the cluster is ready.")
    ] = False,
    topology: Annotated[
        list[Path] | None,
        typer.Option(
            help="Topology file with node pools; or twice: a kind file and a values file of fake-gpu-operator."
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of nodes with two emulated A100-40GB each (default 1).")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Path of the kubeconfig to write; the file must not exist.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the cluster; several clusters can run at the same time.")] = (
        connecting.DEFAULT_NAME
    ),
    select: Annotated[
        bool,
        typer.Option("--select", help="Select the cluster in the default kubeconfig, like kind; `down` reverts this."),
    ] = False,
    bare: Annotated[
        bool, typer.Option("--bare", help="Start only the cluster, without the components of Apportion.")
    ] = False,
    sharing: Annotated[
        bool,
        typer.Option(
            "--sharing",
            help="Install GPU sharing too; without a topology file, one more node has two GPUs not in MIG mode.",
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port of the API server; 0 selects a free port.", min=0, max=options.LARGEST_PORT)
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds to wait until the components are ready.", callback=options.positive_seconds),
    ] = 90.0,
    restart_backoff: Annotated[
        float,
        typer.Option(
            help="Seconds before the second restart of a crashed container; doubles each time.",
            callback=options.seconds,
        ),
    ] = 10.0,
    log_level: Annotated[
        str,
        typer.Option(
            help="Log level: Debug, Info, Warning or Error.", envvar="APPORTION_LOG_LEVEL", callback=options.log_level
        ),
    ] = "Warning",
) -> None:
    """Start an embedded cluster: API server, controllers, nodes with emulated GPUs, and all components.

    Without --detach it runs until Ctrl-C. All objects are in memory only.
    """
    check_name(name)
    target = (kubeconfig or cluster_files.kubeconfig_path(name)).absolute()
    plan = _plan(topology or [], nodes, name, bare=bare, sharing=sharing)
    try:
        cluster_files.prepare_folder()
        _refuse_running(name)
        if detach:
            background.run(name)
            return
        allocator.start_with_system_allocator()
        allocator.give_back_large_blocks()
        with cluster_files.reserved(name):
            _clear(name, target, select=select)
            _serve(
                _Run(name=name, kubeconfig=target, bare=bare, select=select, port=port, seconds=timeout),
                plan,
                restart_backoff,
                log_level,
            )
    except cluster_files.NameTaken:
        typer.echo(f"cluster {name!r} is being started or stopped by another process: use another --name", err=True)
        raise typer.Exit(FAILURE) from None
    except (cluster_files.StateError, contexts.ContextError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None


def check_name(name: str) -> None:
    if not cluster_files.valid_name(name):
        raise typer.BadParameter(
            f"{name!r} is not a valid name: use at most 63 letters, digits, '-', '_' and '.'", param_hint="--name"
        )


def _serve(run: _Run, plan: Topology, restart_backoff: float, log_level: str) -> None:
    from apportion.cluster import process
    from pocketkube.kubelet.containers.backoff import BackOffSettings
    from pocketkube.kubelet.settings import KubeletSettings

    settings = KubeletSettings(restart=BackOffSettings(initial=restart_backoff, maximum=max(300.0, restart_backoff)))
    process.run(lambda: run.main(plan, settings), name="up", level=log_level)


class _Run:
    """One cluster in this process, from start to end."""

    def __init__(self, *, name: str, kubeconfig: Path, bare: bool, select: bool, port: int, seconds: float) -> None:
        self._kubeconfig = kubeconfig
        self._select = select
        self._bare = bare
        self._port = port
        self._seconds = seconds
        self._state = cluster_files.mine(name)

    async def main(self, plan: Topology, settings: KubeletSettings) -> None:
        from apportion.emulation.cluster.gpu_cluster import gpu_cluster

        began = time.monotonic()
        cluster = gpu_cluster(
            plan,
            kubeconfig=self._kubeconfig,
            name=self._state.name,
            port=self._port,
            kubelet=settings,
            installation=connecting.installation(),
        )
        self._note(root=str(cluster.root), kubeconfig=str(self._kubeconfig))
        try:
            async with cluster:
                self._note(server=cluster.url)
                _say(f"API server at {cluster.url}, {len(cluster.kubelets)} node(s) ready")
                if not self._bare:
                    await self._install(cluster, sharing=plan.sharing)
                if self._select:
                    self._select_context()
                _say(f"ready after {time.monotonic() - began:.1f} s. To use the cluster:")
                _say(f"  export KUBECONFIG={self._kubeconfig}")
                self._note(phase=cluster_files.READY)
                await asyncio.Event().wait()
        except OSError as error:
            if self._port and error.errno == errno.EADDRINUSE:
                raise OSError(
                    f"port {self._port} is in use: specify another --port, or omit it to use a free port"
                ) from None
            if self._port and error.errno == errno.EACCES:
                raise OSError(f"port {self._port} is not allowed for this user: specify a --port above 1023") from None
            raise
        finally:
            cluster_files.clean_up(self._state)

    def _select_context(self) -> None:
        """Make this cluster the default of kubectl."""
        path = contexts.default_path()
        self._note(selected_in=str(path))
        try:
            before = contexts.select(path, yaml.safe_load(self._kubeconfig.read_text()))
        except contexts.ContextError as error:
            self._note(phase=cluster_files.FAILED, problem=str(error))
            raise OSError(str(error)) from None
        self._note(selected_before=before)
        _say(f"context {self._state.name} selected in {path}")

    async def _install(self, cluster: EmbeddedCluster, *, sharing: bool) -> None:
        from apportion import manifests
        from apportion.emulation.cluster import installing

        parts = ("", "default-queues", "sharing") if sharing else ("", "default-queues")
        objects = [entry for part in parts for entry in manifests.load(part)]
        async with cluster.client() as client:
            try:
                await installing.apply(client, cluster.server.registry, objects)
                _say(f"{len(objects)} objects of Apportion applied")
                await installing.wait_ready(client, objects, seconds=self._seconds, progress=_say)
            except installing.InstallError as error:
                self._note(phase=cluster_files.FAILED, problem=str(error))
                raise OSError(str(error)) from None

    def _note(self, **changes: str) -> None:
        for field, value in changes.items():
            setattr(self._state, field, value)
        cluster_files.write(self._state)


def _plan(paths: list[Path], nodes: int | None, name: str, *, bare: bool, sharing: bool) -> Topology:
    from apportion.emulation.cluster import topology

    if paths and nodes is not None:
        raise typer.BadParameter("--nodes and --topology cannot be used together: the topology file defines the nodes")
    if sharing and bare:
        raise typer.BadParameter("--sharing and --bare cannot be used together: --bare installs no components")
    try:
        if paths:
            plan = topology.load(*paths, cluster=name)
            plan.sharing = plan.sharing or sharing
        else:
            plan = topology.default(1 if nodes is None else nodes, sharing=sharing)
    except topology.TopologyError as error:
        raise typer.BadParameter(str(error)) from None
    if not bare and not any(pool.nodes for pool in plan.pools):
        raise typer.BadParameter(
            "a cluster without nodes cannot run the components of Apportion: use at least one node, or --bare"
        )
    return plan


def _refuse_running(name: str) -> None:
    """One cluster per name."""
    before = cluster_files.read(name)
    if before is not None and before.alive and before.pid != os.getpid():
        typer.echo(
            f"cluster {name!r} is already running (process {before.pid}): stop it with `apportion down --name {name}`"
            " or use another --name",
            err=True,
        )
        raise typer.Exit(FAILURE)


def _clear(name: str, target: Path, *, select: bool) -> None:
    """Delete what a killed cluster of this name left; then nothing that belongs to others may be in our way."""
    before = cluster_files.read(name)
    if before is not None:
        if before.alive:
            raise cluster_files.NameTaken(name)
        cluster_files.clean_up(before)
    if target != cluster_files.kubeconfig_path(name):
        _check_target(target)
    if select:
        contexts.check_free(contexts.default_path(), name)


def _check_target(path: Path) -> None:
    """A kubeconfig of somebody is never overwritten."""
    if path.is_dir():
        wrong = "is a directory: specify a file"
    elif path.exists() and path.stat().st_size:
        wrong = "exists and is not replaced: specify another file, or use --select to add the cluster to a kubeconfig"
    else:
        return
    raise typer.BadParameter(f"{path} {wrong}", param_hint="--kubeconfig")


def _say(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()
