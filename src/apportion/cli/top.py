"""`apportion top`: all GPUs of a cluster with slices, shares and pods, and pending pods with their reasons, live."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from apportion.cli import connecting, drawing, options

if TYPE_CHECKING:
    from apportion.view.readable import Readable
    from apportion.view.scene import Scene, WaitingQueue

PLAIN_WIDTH = 120
WIDE = 100  # columns from which units are drawn wide
REPAINT_SECONDS = 0.25

_PROBLEMS = {
    "unknown": "does not exist",
    "invalid": "is invalid",
    "not a leaf": "has child queues",
    "missing parent": "is below a queue that does not exist",
    "cycle": "is in or below a cycle of queues",
}


def command(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format: text or json.")
    ] = "text",
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace to show if you may not read all of them.",
            callback=options.namespace,
        ),
    ] = None,
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Show all GPUs with their slices, shares and pods, and pending pods with their reasons.

    Live on a terminal until Ctrl-C; once without a terminal, with --once or with -o json. With rights in one namespace
    only, it shows the pods of that namespace; the ClusterRole apportion-viewer allows the rest.
    """
    logging.basicConfig(level=logging.ERROR)
    with connecting.errors_reported(), suppress(KeyboardInterrupt):
        asyncio.run(_show(kubeconfig, namespace, once=once, as_json=output == "json"))


async def _show(kubeconfig: Path | None, namespace: str | None, *, once: bool, as_json: bool) -> None:
    from apportion.view import readable

    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH, no_color=True, highlight=False)
    width = drawing.UNIT_WIDTH if console.width >= WIDE else drawing.NARROW_UNIT_WIDTH
    painter = drawing.Painter(unit_width=width, glyphs=drawing.glyphs(console))
    async with connecting.client(kubeconfig) as client:
        seen = await readable.read(client, connecting.installation(), namespace or connecting.namespace(kubeconfig))
        if not (seen.gpus or seen.pods):
            await seen.informers.load()  # raises what the server says against it
        if as_json:
            typer.echo(json.dumps(to_json(_scene(seen), seen.note), indent=2))
        elif once or not console.is_terminal:
            console.print(picture(painter, _scene(seen), seen.note))
        else:
            await _live(console, painter, seen)


async def _live(console: Console, painter: drawing.Painter, seen: Readable) -> None:
    async with seen.informers.following():
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                live.update(picture(painter, _scene(seen), seen.note), refresh=True)
                await asyncio.sleep(REPAINT_SECONDS)


def _scene(seen: Readable) -> Scene:
    from apportion.view import scene

    return scene.scene(seen.view) if seen.gpus else scene.of_namespace(seen.view)


def picture(painter: drawing.Painter, shown: Scene, note: str = "") -> RenderableType:
    return Group(
        _headline(shown, note),
        *painter.grids(shown.nodes, legend=True, notes=shown.notes),
        *(Text.assemble((pod, "bold"), "  ", place) for pod, place in shown.bound),
        *_waiting(painter, shown),
        *([Text(note, style="yellow")] if note else []),
    )


def _waiting(painter: drawing.Painter, shown: Scene) -> Iterator[RenderableType]:
    """Pods with their reasons, below the queue in which they wait if there are several."""
    left = dict(shown.waiting)
    for queue in shown.queues:
        yield Text.assemble(("queue ", "yellow"), (queue.name, "bold"), f"  {_standing(queue)}")
        yield from painter.waiting((pod, left.pop(pod)) for pod in queue.pods if pod in left)
    yield from painter.waiting(left.items())


def _standing(queue: WaitingQueue) -> str:
    from apportion.core.queues import quantities

    pending = f"{_many(len(queue.pods), 'pod')} pending"
    if queue.problem is not None:
        return f"{_PROBLEMS[queue.problem]}; {pending}"
    used = quantities.used_of("gpu", queue.used, queue.share, "fair share")
    return f"{used} in use (quota {quantities.number('gpu', queue.quota)}); {pending}"


def to_json(shown: Scene, note: str = "") -> dict[str, Any]:
    queues = {pod: queue.name for queue in shown.queues for pod in queue.pods}
    limited = {"pods": [{"pod": pod, "place": place} for pod, place in shown.bound], "note": note} if note else {}
    return limited | {
        "nodes": [
            {"name": name, "gpus": [asdict(gpu) for gpu in gpus], "note": shown.notes.get(name, "")}
            for name, gpus in shown.nodes.items()
        ],
        "waiting": [
            {"pod": pod, "reason": reason} | ({"queue": queues[pod]} if pod in queues else {})
            for pod, reason in shown.waiting
        ],
        "queues": [
            {"name": queue.name, "usedMilli": queue.used, "fairShareMilli": queue.share, "pending": len(queue.pods)}
            for queue in shown.queues
        ],
    }


def _headline(shown: Scene, note: str) -> Text:
    if note and not shown.nodes:
        pods = len(shown.bound) + len(shown.waiting)
        return Text(f"{_many(pods, 'pod')} with GPUs, {len(shown.waiting)} pending", style="bold")
    gpus = [gpu for members in shown.nodes.values() for gpu in members]
    slices = sum(len(gpu.slices) for gpu in gpus)
    whole = sum(bool(gpu.owner) for gpu in gpus)
    shared = sum(gpu.shared for gpu in gpus)
    free = sum(not gpu.slices and not gpu.owner and not gpu.shared for gpu in gpus)
    return Text(
        f"{_many(len(shown.nodes), 'node')}, {_many(len(gpus), 'GPU')}: {_many(slices, 'slice')}, "
        f"{whole} allocated whole, {f'{shared} shared, ' if shared else ''}{free} free; "
        f"{_many(len(shown.waiting), 'pod')} pending",
        style="bold",
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
