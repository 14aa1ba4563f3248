"""`apportion top`: every GPU of a cluster with its slices and pods, and who waits and why, live."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from apportion.cli import connecting, drawing
from apportion.cli.drawing import Gpu, Slice

if TYPE_CHECKING:
    from apportion.apis.accelerators import Accelerator
    from apportion.core.facts import SlicePlacement
    from apportion.core.ledger import Gpu as Ledger
    from apportion.core.node import NodeState
    from apportion.scheduler.sight import Sight

PLAIN_WIDTH = 120
WIDE = 100  # columns from which units are drawn wide
REPAINT_SECONDS = 0.25


@dataclass(frozen=True)
class Scene:
    """What is drawn. `notes` say what is wrong with a node; `waiting` are pods with their reasons."""

    nodes: dict[str, list[Gpu]]
    notes: dict[str, str] = field(default_factory=dict)
    waiting: list[tuple[str, str]] = field(default_factory=list)


def command(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and leave.")] = False,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text or json.")] = "text",
    kubeconfig: connecting.Kubeconfig = None,
) -> None:
    """Show every GPU, its slices by pod, and pods that wait with their reasons.

    Live on a terminal until Ctrl-C; one picture where there is no terminal, with --once or with -o json.
    """
    logging.basicConfig(level=logging.ERROR)
    with connecting.errors_told(), suppress(KeyboardInterrupt):
        asyncio.run(_show(kubeconfig, once=once, as_json=output == "json"))


async def _show(kubeconfig: Path | None, *, once: bool, as_json: bool) -> None:
    from apportion.scheduler.sight import Sight

    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH, no_color=True, highlight=False)
    width = drawing.UNIT_WIDTH if console.width >= WIDE else drawing.NARROW_UNIT_WIDTH
    painter = drawing.Painter(unit_width=width)
    async with connecting.client(kubeconfig) as client:
        sight = Sight(client)
        await sight.load()
        if as_json:
            typer.echo(json.dumps(to_json(scene(sight)), indent=2))
        elif once or not console.is_terminal:
            console.print(picture(painter, scene(sight)))
        else:
            await _live(console, painter, sight)


async def _live(console: Console, painter: drawing.Painter, sight: Sight) -> None:
    async with sight.following():
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                live.update(picture(painter, scene(sight)), refresh=True)
                await asyncio.sleep(REPAINT_SECONDS)


def picture(painter: drawing.Painter, shown: Scene) -> RenderableType:
    return Group(
        _headline(shown),
        *painter.grids(shown.nodes, legend=True, notes=shown.notes),
        *painter.waiting(shown.waiting),
    )


def scene(sight: Sight) -> Scene:
    """The cluster as the scheduler sees it."""
    nodes = {node.name: node for node in sight.mirror.fleet if node.gpus}
    owners = {pod.metadata.uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in sight.pods}
    states = {claim.name: claim.state for claim in sight.claims}
    fixed = {gpu.uuid: _fixed(gpu) for node in sight.accelerators for gpu in node.status.gpus if gpu.fixed}
    return Scene(
        nodes={
            name: [fixed.get(uuid) or _gpu(gpu, owners, states) for uuid, gpu in node.gpus.items()]
            for name, node in nodes.items()
        },
        notes={name: note for name, node in nodes.items() if (note := _note(node))},
        waiting=list(_waiting(sight)),
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
    whole = sum(bool(gpu.owner) for gpu in gpus)
    free = sum(not gpu.slices and not gpu.owner for gpu in gpus)
    return Text(
        f"{_many(len(shown.nodes), 'node')}, {_many(len(gpus), 'GPU')}: {_many(slices, 'slice')}, "
        f"{whole} given whole, {free} free; {_many(len(shown.waiting), 'pod')} waiting",
        style="bold",
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _gpu(gpu: Ledger, owners: dict[str, str], states: dict[str, str]) -> Gpu:
    slices = [
        _slice(held.placement, owners.get(held.owner, held.owner), states.get(key, ""))
        for key, held in gpu.slices.items()
    ]
    return Gpu(
        uuid=gpu.uuid,
        model=gpu.facts.model.product_names[0] if gpu.facts.model.product_names else gpu.facts.model.id,
        units=gpu.grid.units if gpu.facts.mig else 0,
        slices=tuple(sorted(slices, key=lambda piece: piece.start)),
        owner=owners.get(gpu.whole, gpu.whole) if gpu.whole else "",
        healthy=gpu.facts.healthy,
    )


def _slice(placement: SlicePlacement, owner: str, state: str) -> Slice:
    return Slice(placement.profile, placement.start, placement.size, owner, state)


def _fixed(gpu: Accelerator) -> Gpu:
    """A GPU that was cut beforehand: which pod has which slice only its kubelet knows."""
    slices = tuple(Slice(piece.profile, piece.start, piece.size, "", "") for piece in gpu.fixed)
    return Gpu(gpu.uuid, gpu.model, max(piece.start + piece.size for piece in slices), slices, healthy=gpu.healthy)


def _note(node: NodeState) -> str:
    if not node.ready:
        return "its agent is not ready"
    return "cordoned" if node.facts is not None and node.facts.unschedulable else ""


def _waiting(sight: Sight) -> Iterator[tuple[str, str]]:
    """Pods of ours without a node, with what they were told; gated ones too."""
    from apportion.apis import names

    for pod in sorted(sight.pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name)):
        spec = pod.spec
        if spec.node_name or pod.terminal or pod.metadata.deleting or spec.scheduler_name not in names.OUR_SCHEDULERS:
            continue
        gates = ", ".join(gate.name for gate in spec.scheduling_gates)
        reason = f"scheduling gates hold it back: {gates}" if gates else sight.said(pod.metadata.uid)
        yield f"{pod.metadata.namespace}/{pod.metadata.name}", reason or "not decided yet"
