"""The command: a cluster for the story, a screen (or plain lines) to show it on, a summary and an exit code."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from apportion.cli.demo import workloads
from apportion.cli.demo.story import Step, Story
from apportion.cli.demo.view import Painter
from apportion.cli.demo.world import World

if TYPE_CHECKING:
    from pocketkube.cluster import EmbeddedCluster

PLAIN_WIDTH = 120
GIVE_UP = 150.0


def command(
    *,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="text or json.")] = "text",
    picture: Annotated[Path | None, typer.Option(help="Save the fullest picture of the story as SVG.")] = None,
) -> None:
    """Play the story on an embedded cluster: slices are made, waited for, kept through a crash, and freed.

    Exit code 0 only if every step was as promised.
    """
    logging.basicConfig(level=logging.ERROR)
    show = Screen(quiet=output == "json", picture=picture)
    try:
        kept = asyncio.run(in_time(play(show)))
    except TimeoutError:
        typer.echo(f"the story did not end within {GIVE_UP:g} s", err=True)
        raise typer.Exit(1) from None
    if output == "json":
        typer.echo(json.dumps(show.summary()))
    raise typer.Exit(0 if kept else 1)


async def in_time(story: Awaitable[bool]) -> bool:
    async with asyncio.timeout(GIVE_UP):
        return await story


async def play(show: Screen) -> bool:
    from apportion import manifests
    from apportion.emulation.cluster import installing, topology
    from apportion.emulation.cluster.gpu_cluster import gpu_cluster

    with tempfile.TemporaryDirectory() as folder:
        cluster = gpu_cluster(topology.default(1), kubeconfig=Path(folder) / "kubeconfig", name="demo")
        async with cluster, cluster.client() as client:
            objects = manifests.load()
            show.say(f"API server on {cluster.url}, one node with two emulated A100-40GB")
            try:
                await installing.apply(client, cluster.server.registry, objects)
                await installing.wait_ready(client, objects, seconds=60, progress=show.say)
            except installing.InstallError as error:
                show.say(str(error))
                return False
            world = World(client, workloads.NAMESPACE)
            async with world.watching():
                return await show.follow(Story(world, lambda: left_on_nodes(cluster)), world)


def left_on_nodes(cluster: EmbeddedCluster) -> list[str]:
    """CDI files and slices on the emulated nodes, as they are on disk."""
    left = [path.name for path in cluster.root.glob("*/var/run/cdi/*")]
    for hardware in cluster.root.glob("*/var/lib/apportion/emulated-gpus.json"):
        left += [one["uuid"] for gpu in json.loads(hardware.read_text())["gpus"] for one in gpu["slices"]]
    return left


class Screen:
    """Shows the story: live on a terminal, as lines elsewhere, not at all for machines."""

    def __init__(self, *, quiet: bool, picture: Path | None) -> None:
        self._console = Console(quiet=quiet)
        if not self._console.is_terminal:
            self._console = Console(quiet=quiet, width=PLAIN_WIDTH, no_color=True)
        self._painter = Painter()
        self._picture = picture
        self._begun = time.monotonic()
        self._steps: list[Step] = []
        self._served = 0

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._begun:5.1f} s[/]  {text}", highlight=False)

    async def follow(self, story: Story, world: World) -> bool:
        self._steps = story.steps
        world.pods.on_change(lambda old, _new: self._count(old is None))
        if self._console.is_terminal:
            with Live(console=self._console, refresh_per_second=8, transient=True) as live:
                painting = asyncio.create_task(self._repaint(live, world))
                kept = await story.play(lambda _step: self._save_picture(world))
                painting.cancel()
        else:
            kept = await story.play(lambda step: self._tell(step, world))
        self._close(kept=kept)
        return kept

    def summary(self) -> dict[str, object]:
        return {
            "steps": [
                {"promise": step.promise, "kept": step.kept, "detail": step.detail, "seconds": round(step.seconds, 2)}
                for step in self._steps
            ],
            "pods": self._served,
            "seconds": round(time.monotonic() - self._begun, 1),
        }

    def _count(self, new: bool) -> None:  # noqa: FBT001  a listener's word
        self._served += new

    async def _repaint(self, live: Live, world: World) -> None:
        while True:
            live.update(self._painter.screen(self._steps, world.gpus(), world.waiting()))
            await asyncio.sleep(0.1)

    def _tell(self, step: Step, world: World) -> None:
        self._console.print(f"{'kept  ' if step.kept else 'BROKEN'}  {step.promise}", highlight=False)
        self._console.print(f"        {step.detail} ({step.seconds:.1f} s)", highlight=False)
        for grid in self._painter.grids(world.gpus()):
            self._console.print(grid)
        self._save_picture(world)

    def _save_picture(self, world: World) -> None:
        if self._picture is None or not world.claims.items():
            return
        paper = Console(record=True, width=PLAIN_WIDTH, file=io.StringIO(), force_terminal=True)
        paper.print(self._painter.screen(self._steps, world.gpus(), world.waiting()))
        drawn = paper.export_svg(title="apportion demo")
        self._picture.write_text(re.sub(r"@font-face {.*?}\s*", "", drawn, flags=re.DOTALL))  # no fonts from elsewhere

    def _close(self, *, kept: bool) -> None:
        if self._console.is_terminal:
            self._console.print(self._painter.promises(self._steps))
        table = Table.grid(padding=(0, 2))
        table.add_row("promises kept", f"{sum(bool(step.kept) for step in self._steps)} of {len(self._steps)}")
        table.add_row("pods served", str(self._served))
        table.add_row("time", f"{time.monotonic() - self._begun:.1f} s")
        if kept:
            table.add_row("go on", "apportion up --detach, then kubectl as usual; apportion --help")
        self._console.print(Panel(table, title="as promised" if kept else "NOT as promised", expand=False))
