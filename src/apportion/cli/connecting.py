"""Which cluster a command uses: the one that kubectl would use, otherwise the embedded cluster of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from apportion.apis.installation import Installation
from apportion.cli import cluster_files, contexts
from apportion.cluster import access, errors
from apportion.cluster.client import Client

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Path of the kubeconfig; default: as kubectl, otherwise the cluster of `apportion up`."),
]
DEFAULT_NAME = "apportion"
FAILURE, BAD_INPUT = 1, 2
ROLES = "The ClusterRole apportion-user (with a RoleBinding) allows a namespace, apportion-viewer the whole cluster."


def client(kubeconfig: Path | None) -> Client:
    """Raises ConfigError if no cluster can be found."""
    if kubeconfig is not None:
        return Client(access.from_kubeconfig(kubeconfig))
    try:
        return Client(access.connect())
    except errors.ConfigError:
        chosen = os.environ.get("KUBECONFIG") or contexts.default_path().exists()
        running = {state.name: state.kubeconfig for state in cluster_files.running()}
        if chosen or not running.get(DEFAULT_NAME):
            raise
        return Client(access.from_kubeconfig(running[DEFAULT_NAME]))


@contextmanager
def errors_reported() -> Iterator[None]:
    """Expected errors end a command with one line on stderr and an exit code, never with a traceback."""
    try:
        yield
    except errors.ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(BAD_INPUT) from None
    except errors.Forbidden as error:
        typer.echo(f"{error}. {ROLES}", err=True)
        raise typer.Exit(FAILURE) from None
    except errors.ClusterError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILURE) from None


def installation(**names: str) -> Installation:
    """The installation that a command works with: names from the environment, then those from options."""
    return replace(Installation.from_environment(os.environ), **names)


def namespace(kubeconfig: Path | None) -> str:
    """The namespace that kubectl would use."""
    try:
        return access.current_namespace(kubeconfig)
    except errors.ConfigError:
        return "default"
