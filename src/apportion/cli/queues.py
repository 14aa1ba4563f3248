"""`apportion queues`: the tree of queues with quota, fair share, use, and how many pods wait."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from apportion.cli import connecting, drawing

if TYPE_CHECKING:
    from apportion.core.queues.amounts import Amounts
    from apportion.view.queue_scene import QueueScene, ShownQueue

PLAIN_WIDTH = 160
WIDE = 120  # columns of a terminal from which there is room for everything
BAR = 16  # characters


def command(
    *,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format: text or json.")
    ] = "text",
    resource: Annotated[
        Literal["gpu", "cpu", "memory"], typer.Option("--resource", "-r", help="Resource to show: gpu, cpu or memory.")
    ] = "gpu",
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Show the tree of queues: quota, fair share and use of each, how many pods run and wait, and conditions.

    GPUs count whole, by shares of their memory, and by slices. Amounts are in GPUs, cores or MB; in JSON in thousandths
    of a GPU or core, and in bytes. The fair share is what a queue is entitled to now: it depends on what all queues
    request. In the bar, | marks the fair share; - is unlimited. The ClusterRole apportion-viewer allows to read
    everything that is needed.
    """
    logging.basicConfig(level=logging.ERROR)
    with connecting.errors_reported():
        scene = asyncio.run(_read(kubeconfig))
    if output == "json":
        typer.echo(json.dumps(to_json(scene), indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH, no_color=True, highlight=False)
    unicode = drawing.glyphs(console) is drawing.UNICODE
    for part in picture(scene, resource, unicode=unicode, wide=console.width >= WIDE):
        console.print(part)


async def _read(kubeconfig: Path | None) -> QueueScene:
    from apportion.view.informers import Informers
    from apportion.view.queue_scene import queue_scene
    from apportion.view.view import View

    installation = connecting.installation()
    async with connecting.client(kubeconfig) as client:
        view = View(reservation_namespace=installation.reservation_namespace)
        await Informers(client, view, installation).load()
        return queue_scene(view)


def picture(scene: QueueScene, resource: str, *, unicode: bool = True, wide: bool = True) -> list[Table | Text]:
    from apportion.core.queues import quantities

    number = ("gpu", "cpu", "memory").index(resource)
    title = f"{quantities.said(resource, scene.total[number])} in {_many(len(scene.queues), 'queue')}"
    amounts = ["USED", "FAIR SHARE", "QUOTA", "LIMIT", "RUNNING", "PENDING"]
    headings = ["QUEUE", "", *amounts, "WEIGHT", "PRIORITY", "CONDITIONS"] if wide else ["QUEUE", *amounts]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        left = heading in {"QUEUE", "", "CONDITIONS"}
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for each in scene.queues:
        allowance = each.queue.allowances[number]
        used, share = each.used[number], each.share[number]
        bar = [_bar(used, share, scene.total[number], unicode=unicode)] if wide else []
        conditions = ", ".join(condition.type for condition in each.conditions)
        more: list[str | Text] = [
            f"{float(allowance.weight):g}",
            str(each.queue.priority),
            Text(conditions, style="yellow"),
        ]
        table.add_row(
            "  " * each.depth + each.name,
            *bar,
            quantities.number(resource, used),
            quantities.number(resource, share),
            *("-" if amount < 0 else quantities.number(resource, amount) for amount in allowance[:2]),
            str(each.running),
            Text(str(each.waiting), style="yellow" if each.waiting else ""),
            *(more if wide else []),
        )
    notes = [Text(note, style="yellow") for note in _notes(scene)]
    return [Text(title, style="bold"), table, *([Text(), *notes] if notes else [])]


def _notes(scene: QueueScene) -> Iterator[str]:
    """What the conditions say, and what is not in the tree."""
    for each in scene.queues:
        for condition in each.conditions:
            yield f"{each.name}: {condition.message}"
    for name, problem in scene.invalid.items():
        yield f"{name}: invalid: {problem}"
    for name, count in scene.lost.items():
        yield f"{count} pending {'pod names' if count == 1 else 'pods name'} queue {name}, which does not exist"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def to_json(scene: QueueScene) -> dict[str, Any]:
    return {
        "total": _amounts(scene.total),
        "queues": [_queue(each) for each in scene.queues],
        "invalid": scene.invalid,
        "unknown": scene.lost,
    }


def _queue(each: ShownQueue) -> dict[str, Any]:
    queue = each.queue
    found: dict[str, Any] = {"name": queue.name, "parent": queue.parent, "priority": queue.priority}
    for name, allowance in zip(("gpu", "cpu", "memory"), queue.allowances, strict=True):
        found[name] = {"quota": allowance.quota, "limit": allowance.limit, "weight": float(allowance.weight)}
    return found | {
        "fairShare": _amounts(each.share),
        "used": _amounts(each.used),
        "usedNonPreemptible": _amounts(each.fixed),
        "requested": _amounts(each.demand),
        "runningPods": each.running,
        "pendingPods": each.waiting,
        "conditions": [condition._asdict() for condition in each.conditions],
    }


def _amounts(amounts: Amounts) -> dict[str, int]:
    return {"gpuMilli": amounts.gpu, "cpuMilli": amounts.cpu, "memoryBytes": amounts.memory}


def _bar(used: int, share: int, total: int, *, unicode: bool) -> Text:
    """Use of the queue against the whole; what is above its share in another colour, and the share marked."""
    if total <= 0:
        return Text("")
    full, empty, over, mark = ("█", "·", "▓", "|") if unicode else ("#", ".", "%", "|")
    cells = [empty] * BAR
    filled = min(BAR, -(-used * BAR // total))
    entitled = min(BAR, share * BAR // total)
    for cell in range(filled):
        cells[cell] = full if cell < entitled else over
    if entitled < BAR and cells[entitled] == empty:
        cells[entitled] = mark
    text = Text("".join(cells))
    text.stylize("green", 0, min(filled, entitled))
    text.stylize("yellow", min(filled, entitled), filled)
    return text
