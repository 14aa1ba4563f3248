"""Which cluster a command means: the one that kubectl would talk to, else the embedded one of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from apportion.cli import state
from apportion.cluster import access, errors
from apportion.cluster.client import Client

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Kubeconfig of the cluster; default as kubectl, else the running `apportion up`."),
]
DEFAULT_NAME = "apportion"


def client(kubeconfig: Path | None) -> Client:
    """Raises ConfigError if no cluster can be found."""
    if kubeconfig is not None:
        return Client(access.from_kubeconfig(kubeconfig))
    try:
        return Client(access.connect())
    except errors.ConfigError:
        running = state.read(DEFAULT_NAME)
        chosen = os.environ.get("KUBECONFIG") or (Path.home() / ".kube" / "config").exists()
        if chosen or running is None or not running.alive or not running.kubeconfig:
            raise
        return Client(access.from_kubeconfig(running.kubeconfig))


def namespace(kubeconfig: Path | None) -> str:
    """The one that kubectl would use."""
    try:
        return access.current_namespace(kubeconfig)
    except errors.ConfigError:
        return "default"
