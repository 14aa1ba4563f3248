"""`apportion certs`: new certificates for a webhook that runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from apportion.apis import names
from apportion.cli import connecting


def command(
    *,
    namespace: Annotated[str, typer.Option(help="Namespace of the webhook.")] = names.FALLBACK_NAMESPACE,
    service: Annotated[str, typer.Option(help="Its Service.")] = names.FALLBACK_SERVICE,
    secret: Annotated[str, typer.Option(help="The Secret that holds them.")] = names.FALLBACK_CERTIFICATE_SECRET,
    new_ca: Annotated[
        bool, typer.Option("--new-ca", help="A new authority too; old and new are published together first.")
    ] = False,
    settle: Annotated[
        float, typer.Option(help="Seconds between publishing a new authority and serving certificates of it.")
    ] = 5.0,
    configuration_out: Annotated[
        Path | None, typer.Option(help="Write the fallback webhook's configuration with its caBundle to this file.")
    ] = None,
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Make new certificates for a webhook; the authority stays unless --new-ca is given."""
    from apportion.cluster.errors import ClusterError

    if configuration_out is not None:
        _check_writable(configuration_out)  # before anything changes in the cluster
    try:
        bundle = asyncio.run(_regenerate(namespace, service, secret, settle, kubeconfig, new_ca=new_ca))
    except (ClusterError, ValueError) as error:
        typer.echo(f"apportion certs: {error}", err=True)
        raise typer.Exit(1) from None
    if configuration_out is not None:
        try:
            _write(configuration_out, bundle)
        except OSError as error:
            typer.echo(
                f"apportion certs: the certificates are new, but {configuration_out}: {error.strerror}", err=True
            )
            raise typer.Exit(1) from None
        typer.echo(f"wrote {configuration_out}")


async def _regenerate(
    namespace: str, service: str, secret: str, settle: float, kubeconfig: Path | None, *, new_ca: bool
) -> bytes:
    from apportion.admission.certificates.regeneration import Regeneration
    from apportion.admission.main import CALLERS

    async with connecting.client(kubeconfig) as client:
        work = Regeneration(
            client, list(CALLERS.values()), service=service, namespace=namespace, secret=secret, settle=settle
        )
        made = await (work.new_authority(typer.echo) if new_ca else work.keep_authority(typer.echo))
    return made.bundle


def _check_writable(path: Path) -> None:
    if path.is_dir():
        wrong = "is a folder; name a file in it"
    elif path.exists():
        wrong = "" if os.access(path, os.W_OK) else "cannot be written; name another file"
    elif not path.parent.is_dir():
        wrong = f"there is no folder {path.parent}; make it first, or name another file"
    else:
        wrong = "" if os.access(path.parent, os.W_OK) else "nothing can be written into its folder; name another file"
    if wrong:
        raise typer.BadParameter(f"{path}: {wrong}", param_hint="--configuration-out")


def _write(path: Path, bundle: bytes) -> None:
    import yaml

    from apportion import manifests
    from apportion.admission.certificates.regeneration import with_bundle

    configuration = next(
        entry for entry in manifests.load("fallback") if entry["kind"] == "MutatingWebhookConfiguration"
    )
    path.write_text(yaml.safe_dump(with_bundle(configuration, bundle), sort_keys=False))
