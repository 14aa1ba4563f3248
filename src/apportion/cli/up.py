"""`apportion up` and `apportion down`: an embedded cluster with emulated GPUs and all planes."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from apportion.cli import cluster_files, connecting, contexts

if TYPE_CHECKING:
    from apportion.emulation.cluster.topology import Topology
    from pocketkube.cluster import EmbeddedCluster
    from pocketkube.kubelet.settings import KubeletSettings

_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
BAD_INPUT, FAILURE = 2, 1

Name = Annotated[str, typer.Option(help="Name of the cluster; several clusters can run at the same time.")]


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
    kubeconfig: Annotated[Path | None, typer.Option(help="Path of the kubeconfig to write.")] = None,
    name: Name = "apportion",
    select: Annotated[
        bool,
        typer.Option("--select", help="Select the cluster in the default kubeconfig, like kind; `down` reverts this."),
    ] = False,
    bare: Annotated[
        bool, typer.Option("--bare", help="Start only the cluster, without the components of Apportion.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the API server; 0 selects a free port.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until the components are ready.")] = 90.0,
    restart_backoff: Annotated[
        float, typer.Option(help="Seconds before the second restart of a crashed container; doubles each time.")
    ] = 10.0,
    log_level: Annotated[
        str, typer.Option(help="Log level: Debug, Info, Warning or Error.", envvar="APPORTION_LOG_LEVEL")
    ] = "Warning",
) -> None:
    """Start an embedded cluster: API server, controllers, nodes with emulated GPUs, and all components.

    Without --detach it runs until Ctrl-C. All objects are in memory only.
    """
    target = (kubeconfig or cluster_files.kubeconfig_path(name)).absolute()
    plan = _plan(topology or [], nodes, name)
    _take_name(name)
    if detach:
        _detach(name)
        return
    from apportion.cluster import process
    from pocketkube.kubelet.containers.backoff import BackOffSettings
    from pocketkube.kubelet.settings import KubeletSettings

    settings = KubeletSettings(restart=BackOffSettings(initial=restart_backoff, maximum=max(300.0, restart_backoff)))
    run = _Run(name=name, kubeconfig=target, bare=bare, select=select, port=port, seconds=timeout)
    process.run(lambda: run.main(plan, settings), name="up", level=log_level)


def down(
    *,
    name: Name = "apportion",
    timeout: Annotated[float, typer.Option(help="Seconds to wait before the cluster is killed.")] = 20.0,
) -> None:
    """Stop an embedded cluster and delete its files."""
    state = cluster_files.read(name)
    if state is None:
        typer.echo(f"no cluster {name!r} is running")
        return
    if state.alive:
        cluster_files.stop(state, seconds=timeout)
    cluster_files.clean_up(state)
    typer.echo(f"cluster {name!r} stopped")


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
                    await self._install(cluster)
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

    async def _install(self, cluster: EmbeddedCluster) -> None:
        from apportion import manifests
        from apportion.emulation.cluster import installing

        objects = manifests.load()
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


def _plan(paths: list[Path], nodes: int | None, name: str) -> Topology:
    from apportion.emulation.cluster import topology

    if paths and nodes is not None:
        raise typer.BadParameter("--nodes and --topology cannot be used together: the topology file defines the nodes")
    try:
        return topology.load(*paths, cluster=name) if paths else topology.default(1 if nodes is None else nodes)
    except topology.TopologyError as error:
        raise typer.BadParameter(str(error)) from None


def _take_name(name: str) -> None:
    """One cluster per name; files of a killed cluster are deleted."""
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is not a valid name: use at most 63 letters, digits, '-', '_' and '.'", param_hint="--name"
        )
    before = cluster_files.read(name)
    if before is None:
        return
    if before.alive and before.pid != os.getpid():
        typer.echo(
            f"cluster {name!r} is already running (process {before.pid}): stop it with `apportion down --name {name}`"
            " or use another --name",
            err=True,
        )
        raise typer.Exit(FAILURE)
    cluster_files.clean_up(before)


def _detach(name: str) -> None:
    """Run the same command in its own session, print its output, and wait until it is ready."""
    log = cluster_files.log_path(name)
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    arguments = [word for word in sys.argv[1:] if word not in ("--detach", "-d")]
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "apportion", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    shown = 0
    while True:
        shown = _show(log, shown)
        state = cluster_files.read(name)
        if child.poll() is not None:
            _show(log, shown)
            typer.echo(f"cluster {name!r} did not start; its log is {log}", err=True)
            raise typer.Exit(FAILURE)
        if state is not None and state.pid == child.pid and state.phase == cluster_files.READY:
            _show(log, shown)
            return
        time.sleep(0.05)


def _show(log: Path, shown: int) -> int:
    text = log.read_text(errors="replace")[shown:]
    if text:
        typer.echo(text, nl=False)
    return shown + len(text)


def _say(text: str) -> None:
    typer.echo(text)
    sys.stdout.flush()
