"""`apportion webhook`: the admission plane."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apportion.apis.installation import Installation
from apportion.cli import connecting, options


def command(
    *,
    listen: Annotated[
        str, typer.Option(help="Address for admission reviews (TLS).", callback=options.address)
    ] = "127.0.0.1:8443",
    probes: options.Probes = "127.0.0.1:9402",
    serve: Annotated[
        str, typer.Option(help="Rules to serve, separated by commas: slices, guard, fallback.")
    ] = "slices,guard",
    namespace: Annotated[
        str, typer.Option(help="Namespace of the Service and the certificates.", callback=options.namespace)
    ] = Installation.namespace,
    service: Annotated[
        str, typer.Option(help="Service of the webhook.", callback=options.object_name)
    ] = Installation.webhook_service,
    secret: Annotated[
        str,
        typer.Option(
            help="Secret for the certificates; created and renewed by the webhook.", callback=options.object_name
        ),
    ] = Installation.webhook_secret,
    certificates: Annotated[
        Path | None, typer.Option(help="Directory with ca.crt, tls.crt and tls.key, instead of the Secret.")
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            help="File with the CA of clients that may call; others are refused during the TLS handshake.",
            envvar="APPORTION_CLIENT_CA",
        ),
    ] = None,
    runtime_class: Annotated[
        str,
        typer.Option(
            help="Runtime class for pods with slices or shares that set none, if it exists; empty: none.",
            envvar="APPORTION_RUNTIME_CLASS",
        ),
    ] = "",
    tiers: Annotated[
        str,
        typer.Option(help="Fallback tiers of the cluster, largest first.", envvar="APPORTION_FALLBACK_TIERS"),
    ] = "7g.70gb > 3g.40gb > 2g.20gb > 1g.10gb",
    promise_seconds: Annotated[
        float,
        typer.Option(
            help="Seconds after which a promise expires if its pod is not observed.",
            envvar="APPORTION_PROMISE_SECONDS",
            callback=options.positive_seconds,
        ),
    ] = 30.0,
    log_level: options.PlaneLogLevel = "Normal",
) -> None:
    """Serve admission reviews for slices, shares, validation and fallback."""
    from apportion.admission import main
    from apportion.admission.fallback.decision_rounds import Patience
    from apportion.admission.fallback.tiers import parse
    from apportion.apis.errors import InputError
    from apportion.cluster import process

    parts = tuple(dict.fromkeys(part.strip() for part in serve.split(",")))
    if not parts or not set(parts) <= set(main.PARTS):
        raise typer.BadParameter(f"{serve!r}: specify one or more of {', '.join(main.PARTS)}", param_hint="--serve")
    try:
        steps = parse(tiers, "--tiers")
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="--tiers") from None
    settings = main.Settings(
        listen=listen,
        probes=probes,
        serve=parts,
        installation=connecting.installation(),
        namespace=namespace,
        service=service,
        secret=secret,
        certificates=certificates,
        client_ca=client_ca if client_ca and str(client_ca) != "." else None,
        runtime_class=runtime_class or None,
        tiers=steps,
        patience=Patience(lifetime=promise_seconds),
    )
    process.run(lambda: main.run(settings), name="webhook", level=log_level)
