"""`apportion operator`: the plane that watches over the others."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from apportion.apis import names


class Mode(StrEnum):
    """Whether GPUs are emulated."""

    enabled = "enabled"
    disabled = "disabled"


def command(
    probes: Annotated[str, typer.Option(help="Where to serve /healthz, /readyz and /metrics.")] = "127.0.0.1:9403",
    namespace: Annotated[str, typer.Option(help="Namespace of the planes.")] = names.DAS_NAMESPACE,
    emulated_mode: Annotated[
        Mode, typer.Option(help="What a DASOperator says that is made because there is none.")
    ] = Mode.disabled,
    log_level: Annotated[
        str, typer.Option(help="Normal, Debug, Trace or TraceAll.", envvar="APPORTION_LOG_LEVEL")
    ] = "Normal",
) -> None:
    """Apply the DASOperator's switches to the planes and report how they are doing, until stopped."""
    from apportion.cluster import process
    from apportion.operator import main

    settings = main.Settings(
        probes=probes, namespace=namespace, emulated_mode="enabled" if emulated_mode is Mode.enabled else "disabled"
    )
    process.run(lambda: main.run(settings), name="operator", level=log_level)
