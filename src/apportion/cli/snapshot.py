"""`apportion snapshot`: the fleet and who waits, written to a file that decisions can be made on elsewhere."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from apportion.cli import connecting


def command(
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output if none is given.")
    ] = None,
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Save nodes, GPUs, slices, pods and who waits as JSON.

    The file has what placement decisions need: names, labels, amounts and placement rules. It has no environment
    variables, annotations, images or commands.
    """
    logging.basicConfig(level=logging.ERROR)
    with connecting.errors_told():
        data = asyncio.run(_taken(kubeconfig))
        if output is None:
            sys.stdout.write(data.decode() + "\n")
            return
    try:
        output.write_bytes(data + b"\n")
    except OSError as error:
        typer.echo(f"{output} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(connecting.FAILURE) from None


async def _taken(kubeconfig: Path | None) -> bytes:
    from apportion.view import snapshot
    from apportion.view.informers import Informers
    from apportion.view.view import View

    async with connecting.client(kubeconfig) as client:
        view = View()
        await Informers(client, view).load()
        return snapshot.save(view)
