"""`apportion certs`: new certificates for a running webhook."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from apportion.apis.installation import FALLBACK_NAMESPACE_ENV, Installation
from apportion.cli import connecting, options


def command(
    *,
    namespace: Annotated[
        str,
        typer.Option(help="Namespace of the webhook.", envvar=FALLBACK_NAMESPACE_ENV, callback=options.namespace),
    ] = Installation.fallback_namespace,
    service: Annotated[
        str, typer.Option(help="Service of the webhook.", callback=options.object_name)
    ] = Installation.fallback_service,
    secret: Annotated[
        str, typer.Option(help="Secret that contains the certificates.", callback=options.object_name)
    ] = Installation.fallback_secret,
    new_ca: Annotated[
        bool, typer.Option("--new-ca", help="Create a new CA too; the old and the new CA are published together first.")
    ] = False,
    settle: Annotated[
        float,
        typer.Option(
            help="Seconds between publishing a new CA and serving certificates signed by it.", callback=options.seconds
        ),
    ] = 5.0,
    configuration_out: Annotated[
        Path | None,
        typer.Option(help="Write the configuration of the fallback webhook, with its caBundle, to this file."),
    ] = None,
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Issue new certificates for a running webhook. The CA is kept unless --new-ca is given."""
    from apportion.cluster.errors import ClusterError, ConfigError

    if configuration_out is not None:
        options.check_writable(configuration_out, "--configuration-out")  # before anything changes in the cluster
    try:
        bundle = asyncio.run(_regenerate(namespace, service, secret, settle, kubeconfig, new_ca=new_ca))
    except (ClusterError, ValueError) as error:
        typer.echo(f"apportion certs: {error}", err=True)
        raise typer.Exit(connecting.BAD_INPUT if isinstance(error, ConfigError) else connecting.FAILURE) from None
    if configuration_out is not None:
        try:
            _write(configuration_out, bundle)
        except OSError as error:
            typer.echo(
                f"apportion certs: new certificates issued, but cannot write {configuration_out}: {error.strerror}",
                err=True,
            )
            raise typer.Exit(1) from None
        typer.echo(f"wrote {configuration_out}")


async def _regenerate(
    namespace: str, service: str, secret: str, settle: float, kubeconfig: Path | None, *, new_ca: bool
) -> bytes:
    from apportion.admission.certificates.regeneration import Regeneration
    from apportion.admission.main import callers

    async with connecting.client(kubeconfig) as client:
        work = Regeneration(
            client,
            list(callers(connecting.installation()).values()),
            service=service,
            namespace=namespace,
            secret=secret,
            settle=settle,
        )
        made = await (work.new_authority(typer.echo) if new_ca else work.keep_authority(typer.echo))
    return made.bundle


def _write(path: Path, bundle: bytes) -> None:
    import yaml

    from apportion import manifests
    from apportion.admission.certificates.regeneration import with_bundle

    configuration = next(
        entry for entry in manifests.load("fallback") if entry["kind"] == "MutatingWebhookConfiguration"
    )
    path.write_text(yaml.safe_dump(with_bundle(configuration, bundle), sort_keys=False), encoding="utf-8")
