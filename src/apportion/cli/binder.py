"""`apportion binder`: the binder plane as a process."""

from __future__ import annotations

from typing import Annotated

import typer

from apportion.apis.installation import NAMESPACE_ENV, Installation
from apportion.cli import connecting, options


def command(
    probes: options.Probes = "127.0.0.1:9404",
    namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of NodeAccelerators and the DASOperator object.",
            envvar=NAMESPACE_ENV,
            callback=options.namespace,
        ),
    ] = Installation.namespace,
    lease_name: options.LeaseName = Installation.binder_lease,
    lease_duration: options.LeaseDuration = 15.0,
    log_level: options.PlaneLogLevel = "Normal",
) -> None:
    """Bind pods that share GPUs as the scheduler decided. Of several replicas, one is the leader."""
    from apportion.binder import main
    from apportion.binder.settings import Settings
    from apportion.cluster import process

    settings = Settings(
        probes=probes,
        installation=connecting.installation(namespace=namespace),
        lease_name=lease_name,
        lease_duration=lease_duration,
        lease_renew_deadline=lease_duration * 2 / 3,
        lease_retry=max(0.1, lease_duration * 2 / 15),
    )
    process.run(lambda: main.run(settings), name="binder", level=log_level)
