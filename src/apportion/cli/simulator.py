"""`apportion simulator`: one log of all emulated GPUs of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    probes: Annotated[str, typer.Option(help="Where to serve /healthz, /readyz and /metrics.")] = "127.0.0.1:9405",
    log_level: Annotated[
        str, typer.Option(help="Normal, Debug, Trace or TraceAll.", envvar="APPORTION_LOG_LEVEL")
    ] = "Normal",
) -> None:
    """Tell which emulated GPUs the nodes have, and mark nodes that were given some, until stopped."""
    from apportion.cluster import process
    from apportion.emulation import simulator

    process.run(lambda: simulator.run(probes), name="simulator", level=log_level)
