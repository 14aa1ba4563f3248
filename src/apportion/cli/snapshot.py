"""`apportion snapshot`: the fleet and the pending pods as a file, on which decisions can be made elsewhere."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from apportion.cli import connecting, options


def command(
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: standard output.")
    ] = None,
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Save nodes, GPUs, slices, pods and pending pods as JSON.

    The file contains what placement decisions need: names, labels, resource amounts and scheduling constraints. It
    contains no environment variables, annotations, images or commands.
    """
    logging.basicConfig(level=logging.ERROR)
    if output is not None:
        options.check_writable(output, "--output")
    with connecting.errors_reported():
        data = asyncio.run(_taken(kubeconfig))
    if output is None:
        _print(data)
        return
    try:
        output.write_bytes(data + b"\n")
    except OSError as error:
        typer.echo(f"cannot write {output}: {error.strerror}", err=True)
        raise typer.Exit(connecting.FAILURE) from None


def _print(data: bytes) -> None:
    """As UTF-8 whatever the terminal is: the output is a file in most cases."""
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(data.decode() + "\n")
    else:
        binary.write(data + b"\n")
        binary.flush()


async def _taken(kubeconfig: Path | None) -> bytes:
    from apportion.view import snapshot
    from apportion.view.informers import Informers
    from apportion.view.view import View

    async with connecting.client(kubeconfig) as client:
        installation = connecting.installation()
        view = View(reservation_namespace=installation.reservation_namespace)
        await Informers(client, view, installation).load()
        return snapshot.save(view)
