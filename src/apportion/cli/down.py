"""`apportion down`: stop an embedded cluster, and only the one that is meant.

Somebody who works with several clusters has KUBECONFIG set. Then the cluster that it selects is meant; a --name that
says something else needs a confirmation.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from apportion.cli import cluster_files, connecting, contexts, options
from apportion.cli.cluster_files import ClusterState
from apportion.cli.up import check_name

BAD_INPUT = 2


def down(
    *,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the cluster; default: the cluster that KUBECONFIG selects, otherwise apportion."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Stop it without asking.")] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait before the cluster is killed.", callback=options.seconds)
    ] = 20.0,
) -> None:
    """Stop an embedded cluster and delete its files.

    With KUBECONFIG set, the cluster that it selects is stopped. If --name and KUBECONFIG name different clusters, the
    command asks on a terminal, and refuses without one.
    """
    if name is not None:
        check_name(name)
    try:
        chosen = _chosen(name, confirmed=yes)
        state = cluster_files.read(chosen)
        if state is None:
            typer.echo(_nothing(chosen))
            return
        if state.alive:
            cluster_files.stop(state, seconds=timeout)
        with cluster_files.reserved(chosen):
            cluster_files.clean_up(state)
    except cluster_files.NameTaken:
        pass  # another process has cleaned up, or starts the cluster again
    except (cluster_files.StateError, contexts.ContextError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None
    typer.echo(f"cluster {chosen!r} stopped")


def _chosen(name: str | None, *, confirmed: bool) -> str:
    paths = contexts.environment_paths()
    if not paths:
        return name or connecting.DEFAULT_NAME
    selected, mentioned = _of_kubeconfig()
    listed = ":".join(map(str, paths))
    if name is None:
        if selected is not None:
            return selected.name
        if cluster_files.read(connecting.DEFAULT_NAME) is None:
            return connecting.DEFAULT_NAME
        _confirm(
            connecting.DEFAULT_NAME,
            f"KUBECONFIG ({listed}) does not select a cluster of `apportion up`",
            f"specify --name {connecting.DEFAULT_NAME}",
            confirmed=confirmed,
        )
        return connecting.DEFAULT_NAME
    if mentioned and name not in {state.name for state in mentioned}:
        others = ", ".join(repr(state.name) for state in mentioned)
        _confirm(
            name,
            f"KUBECONFIG ({listed}) names cluster {others}, and --name says {name!r}",
            "unset KUBECONFIG, or use --yes",
            confirmed=confirmed,
        )
    return name


def _of_kubeconfig() -> tuple[ClusterState | None, list[ClusterState]]:
    """The cluster that KUBECONFIG selects, and all that its files name; a kubeconfig of ours may be gone already."""
    current = ""
    known: set[str] = set()
    paths = contexts.environment_paths()
    for path in paths:
        config = contexts.read(path)
        current = current or contexts.current_server(config)
        known |= contexts.servers(config)
    own = {str(path) for path in paths}
    mentioned = [state for state in cluster_files.known() if state.server in known or state.kubeconfig in own]
    if current:
        return next((state for state in mentioned if state.server == current), None), mentioned
    return next((state for state in mentioned if state.kubeconfig in own), None), mentioned


def _confirm(name: str, problem: str, fix: str, *, confirmed: bool) -> None:
    if confirmed:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        typer.echo(f"{problem}: nothing is stopped; {fix}", err=True)
        raise typer.Exit(BAD_INPUT)
    typer.echo(problem)
    typer.confirm(f"Stop cluster {name!r}?", abort=True)


def _nothing(name: str) -> str:
    others = ", ".join(repr(state.name) for state in cluster_files.running())
    return f"no cluster {name!r} is running" + (f"; running: {others}" if others else "")
