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

from apportion.cli import contexts
from apportion.cli import state as states

if TYPE_CHECKING:
    from apportion.emulation.cluster.topology import Topology
    from pocketkube.cluster import EmbeddedCluster
    from pocketkube.kubelet.settings import KubeletSettings

_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
BAD_INPUT, FAILURE = 2, 1

Name = Annotated[str, typer.Option(help="Name of the cluster; several can run side by side.")]


def up(
    *,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when the cluster is ready.")] = False,
    topology: Annotated[
        list[Path] | None,
        typer.Option(help="YAML file with pools of nodes; or twice, a kind file and values of fake-gpu-operator."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes with two emulated A100-40GB each (default 1).")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Where to write the kubeconfig.")] = None,
    name: Name = "apportion",
    select: Annotated[
        bool, typer.Option("--select", help="Make it the cluster of bare kubectl, as kind does; `down` undoes it.")
    ] = False,
    bare: Annotated[bool, typer.Option("--bare", help="Only the cluster, without the planes of Apportion.")] = False,
    port: Annotated[int, typer.Option(help="Port of the API server; 0 takes a free one.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds in which the planes must be ready.")] = 90.0,
    restart_backoff: Annotated[
        float, typer.Option(help="Seconds before the second restart of a container that crashed; doubles each time.")
    ] = 10.0,
    log_level: Annotated[
        str, typer.Option(help="Debug, Info, Warning or Error.", envvar="APPORTION_LOG_LEVEL")
    ] = "Warning",
) -> None:
    """Start an embedded cluster: API server, controllers, nodes with emulated GPUs, and all planes.

    Without --detach it runs until Ctrl-C. Nothing is kept: objects live in memory.
    """
    target = (kubeconfig or states.kubeconfig_path(name)).absolute()
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
    timeout: Annotated[float, typer.Option(help="Seconds to end in before it is killed.")] = 20.0,
) -> None:
    """Stop an embedded cluster and remove what it left."""
    state = states.read(name)
    if state is None:
        typer.echo(f"no cluster {name!r} is running")
        return
    if state.alive:
        states.stop(state, seconds=timeout)
    states.clean_up(state)
    typer.echo(f"cluster {name!r} is gone")


class _Run:
    """One cluster in this process, from start to end."""

    def __init__(self, *, name: str, kubeconfig: Path, bare: bool, select: bool, port: int, seconds: float) -> None:
        self._kubeconfig = kubeconfig
        self._select = select
        self._bare = bare
        self._port = port
        self._seconds = seconds
        self._state = states.mine(name)

    async def main(self, plan: Topology, settings: KubeletSettings) -> None:
        from apportion.emulation.cluster.gpu_cluster import gpu_cluster

        began = time.monotonic()
        cluster = gpu_cluster(
            plan, kubeconfig=self._kubeconfig, name=self._state.name, port=self._port, kubelet=settings
        )
        self._note(root=str(cluster.root), kubeconfig=str(self._kubeconfig))
        try:
            async with cluster:
                self._note(server=cluster.url)
                _say(f"API server on {cluster.url}, {len(cluster.kubelets)} node(s) ready")
                if not self._bare:
                    await self._install(cluster)
                if self._select:
                    self._take_over()
                _say(f"ready after {time.monotonic() - began:.1f} s; use it with")
                _say(f"  export KUBECONFIG={self._kubeconfig}")
                self._note(phase=states.READY)
                await asyncio.Event().wait()
        except OSError as error:
            if self._port and error.errno == errno.EADDRINUSE:
                raise OSError(f"port {self._port} is in use: give another --port, or none to get a free one") from None
            raise
        finally:
            states.clean_up(self._state)

    def _take_over(self) -> None:
        """From now on kubectl without options speaks to this cluster."""
        path = contexts.default_path()
        self._note(selected_in=str(path))
        try:
            before = contexts.select(path, yaml.safe_load(self._kubeconfig.read_text()))
        except contexts.ContextError as error:
            self._note(phase=states.FAILED, problem=str(error))
            raise OSError(str(error)) from None
        self._note(selected_before=before)
        _say(f"context {self._state.name} is selected in {path}")

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
                self._note(phase=states.FAILED, problem=str(error))
                raise OSError(str(error)) from None

    def _note(self, **changes: str) -> None:
        for field, value in changes.items():
            setattr(self._state, field, value)
        states.write(self._state)


def _plan(paths: list[Path], nodes: int | None, name: str) -> Topology:
    from apportion.emulation.cluster import topology

    if paths and nodes is not None:
        raise typer.BadParameter("--nodes and --topology exclude each other: the file says how many nodes there are")
    try:
        return topology.load(*paths, cluster=name) if paths else topology.default(1 if nodes is None else nodes)
    except topology.TopologyError as error:
        raise typer.BadParameter(str(error)) from None


def _take_name(name: str) -> None:
    """One cluster per name; what a killed one left is removed."""
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is no name: use letters, digits, '-', '_' and '.', at most 63 of them", param_hint="--name"
        )
    before = states.read(name)
    if before is None:
        return
    if before.alive and before.pid != os.getpid():
        typer.echo(
            f"cluster {name!r} is already running (process {before.pid}): stop it with `apportion down --name {name}`"
            " or give another --name",
            err=True,
        )
        raise typer.Exit(FAILURE)
    states.clean_up(before)


def _detach(name: str) -> None:
    """Run the same command in a session of its own and wait until it is ready, showing what it says."""
    log = states.log_path(name)
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
        state = states.read(name)
        if child.poll() is not None:
            _show(log, shown)
            typer.echo(f"cluster {name!r} did not come up; its log is {log}", err=True)
            raise typer.Exit(FAILURE)
        if state is not None and state.pid == child.pid and state.phase == states.READY:
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
