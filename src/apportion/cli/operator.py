"""`apportion operator`: the plane that configures the others and reports their status."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from apportion.apis.installation import NAMESPACE_ENV, Installation
from apportion.cli import connecting, options


class Mode(StrEnum):
    """Whether GPUs are emulated."""

    enabled = "enabled"
    disabled = "disabled"


def command(
    probes: options.Probes = "127.0.0.1:9403",
    namespace: Annotated[
        str, typer.Option(help="Namespace of the components.", envvar=NAMESPACE_ENV, callback=options.namespace)
    ] = Installation.namespace,
    emulated_mode: Annotated[
        Mode, typer.Option(help="emulatedMode of the DASOperator object if the operator has to create it.")
    ] = Mode.disabled,
    log_level: options.PlaneLogLevel = "Normal",
) -> None:
    """Apply the spec of the DASOperator object to the components, and report their status."""
    from apportion.cluster import process
    from apportion.operator import main

    settings = main.Settings(
        probes=probes,
        installation=connecting.installation(namespace=namespace),
        emulated_mode="enabled" if emulated_mode is Mode.enabled else "disabled",
    )
    process.run(lambda: main.run(settings), name="operator", level=log_level)
