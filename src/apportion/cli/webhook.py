"""`apportion webhook`: the admission plane."""

from __future__ import annotations

from typing import Annotated

import typer

from apportion.apis import names


def command(
    listen: Annotated[str, typer.Option(help="Where to serve reviews over TLS.")] = "127.0.0.1:8443",
    probes: Annotated[str, typer.Option(help="Where to serve /healthz, /readyz and /metrics.")] = "127.0.0.1:9402",
    namespace: Annotated[
        str, typer.Option(help="Namespace of the Service and the certificates.")
    ] = names.DAS_NAMESPACE,
    service: Annotated[str, typer.Option(help="Service under which API servers call us.")] = names.WEBHOOK_SERVICE,
    runtime_class: Annotated[
        str,
        typer.Option(
            help="Runtime class for pods with slices that name none, if it exists; empty: none.",
            envvar="APPORTION_RUNTIME_CLASS",
        ),
    ] = "",
    log_level: Annotated[
        str, typer.Option(help="Normal, Debug, Trace or TraceAll.", envvar="APPORTION_LOG_LEVEL")
    ] = "Normal",
) -> None:
    """Serve admission reviews until stopped."""
    from apportion.admission import main
    from apportion.cluster import process

    settings = main.Settings(
        listen=listen, probes=probes, namespace=namespace, service=service, runtime_class=runtime_class or None
    )
    process.run(lambda: main.run(settings), name="webhook", level=log_level)
