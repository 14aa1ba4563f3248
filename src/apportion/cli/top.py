"""`apportion top`: all GPUs of a cluster with their slices and pods, and pending pods with their reasons, live."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from apportion.cli import connecting, drawing

if TYPE_CHECKING:
    from apportion.view.informers import Informers
    from apportion.view.scene import Scene
    from apportion.view.view import View

PLAIN_WIDTH = 120
WIDE = 100  # columns from which units are drawn wide
REPAINT_SECONDS = 0.25


def command(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format: text or json.")
    ] = "text",
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Show all GPUs with their slices and pods, and pending pods with their reasons.

    Live on a terminal until Ctrl-C; once without a terminal, with --once or with -o json.
    """
    logging.basicConfig(level=logging.ERROR)
    with connecting.errors_reported(), suppress(KeyboardInterrupt):
        asyncio.run(_show(kubeconfig, once=once, as_json=output == "json"))


async def _show(kubeconfig: Path | None, *, once: bool, as_json: bool) -> None:
    from apportion.view.informers import Informers
    from apportion.view.scene import scene
    from apportion.view.view import View

    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH, no_color=True, highlight=False)
    width = drawing.UNIT_WIDTH if console.width >= WIDE else drawing.NARROW_UNIT_WIDTH
    painter = drawing.Painter(unit_width=width)
    async with connecting.client(kubeconfig) as client:
        installation = connecting.installation()
        view = View(reservation_namespace=installation.reservation_namespace)
        informers = Informers(client, view, installation)
        await informers.load()
        if as_json:
            typer.echo(json.dumps(to_json(scene(view)), indent=2))
        elif once or not console.is_terminal:
            console.print(picture(painter, scene(view)))
        else:
            await _live(console, painter, view, informers)


async def _live(console: Console, painter: drawing.Painter, view: View, informers: Informers) -> None:
    from apportion.view.scene import scene

    async with informers.following():
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                live.update(picture(painter, scene(view)), refresh=True)
                await asyncio.sleep(REPAINT_SECONDS)


def picture(painter: drawing.Painter, shown: Scene) -> RenderableType:
    return Group(
        _headline(shown),
        *painter.grids(shown.nodes, legend=True, notes=shown.notes),
        *painter.waiting(shown.waiting),
    )


def to_json(shown: Scene) -> dict[str, Any]:
    return {
        "nodes": [
            {"name": name, "gpus": [asdict(gpu) for gpu in gpus], "note": shown.notes.get(name, "")}
            for name, gpus in shown.nodes.items()
        ],
        "waiting": [{"pod": pod, "reason": reason} for pod, reason in shown.waiting],
    }


def _headline(shown: Scene) -> Text:
    gpus = [gpu for members in shown.nodes.values() for gpu in members]
    slices = sum(len(gpu.slices) for gpu in gpus)
    whole = sum(bool(gpu.owner) and not gpu.reserved for gpu in gpus)
    shared = sum(gpu.reserved for gpu in gpus)
    free = sum(not gpu.slices and not gpu.owner for gpu in gpus)
    return Text(
        f"{_many(len(shown.nodes), 'node')}, {_many(len(gpus), 'GPU')}: {_many(slices, 'slice')}, "
        f"{whole} allocated whole, {f'{shared} shared, ' if shared else ''}{free} free; "
        f"{_many(len(shown.waiting), 'pod')} pending",
        style="bold",
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
