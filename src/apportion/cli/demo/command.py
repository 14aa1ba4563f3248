"""The command: starts a cluster, runs the steps, shows them on a screen or as lines, and sets the exit code."""

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

from apportion.cli import drawing, options
from apportion.cli.demo import workloads
from apportion.cli.demo.observation import Observation
from apportion.cli.demo.rendering import DemoPainter
from apportion.cli.demo.steps import Demo, Step

if TYPE_CHECKING:
    from pocketkube.cluster import EmbeddedCluster

PLAIN_WIDTH = 120
TIMEOUT = 150.0


def command(
    *,
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format: text or json.")
    ] = "text",
    picture: Annotated[Path | None, typer.Option(help="Save the last screen with slices as an SVG file.")] = None,
) -> None:
    """Demonstrate MIG slices on an embedded cluster: create, wait for, keep and release them.

    The exit code is 0 only if every step passed.
    """
    logging.basicConfig(level=logging.ERROR)
    if picture is not None:
        options.check_writable(picture, "--picture")  # before the demo takes its time
    show = Screen(quiet=output == "json", picture=picture)
    try:
        passed = asyncio.run(in_time(run(show)))
    except TimeoutError:
        typer.echo(f"the demo did not complete within {TIMEOUT:g} s", err=True)
        raise typer.Exit(1) from None
    if output == "json":
        typer.echo(json.dumps(show.summary()))
    raise typer.Exit(0 if passed else 1)


async def in_time(demo: Awaitable[bool]) -> bool:
    async with asyncio.timeout(TIMEOUT):
        return await demo


async def run(show: Screen) -> bool:
    from apportion import manifests
    from apportion.emulation.cluster import installing, topology
    from apportion.emulation.cluster.gpu_cluster import gpu_cluster

    with tempfile.TemporaryDirectory() as folder:
        cluster = gpu_cluster(topology.default(1), kubeconfig=Path(folder) / "kubeconfig", name="demo")
        async with cluster, cluster.client() as client:
            objects = manifests.load()
            show.say(f"API server at {cluster.url}, 1 node with 2 emulated A100-40GB")
            try:
                await installing.apply(client, cluster.server.registry, objects)
                await installing.wait_ready(client, objects, seconds=60, progress=show.say)
            except installing.InstallError as error:
                show.say(str(error))
                return False
            observed = Observation(client, workloads.NAMESPACE)
            async with observed.watching():
                return await show.follow(Demo(observed, lambda: left_on_nodes(cluster)), observed)


def left_on_nodes(cluster: EmbeddedCluster) -> list[str]:
    """CDI files and slices of the emulated nodes on disk."""
    left = [path.name for path in cluster.root.glob("*/var/run/cdi/*")]
    for hardware in cluster.root.glob("*/var/lib/apportion/emulated-gpus.json"):
        left += [one["uuid"] for gpu in json.loads(hardware.read_text())["gpus"] for one in gpu["slices"]]
    return left


class Screen:
    """Shows the demo: live on a terminal, otherwise as lines, and nothing with `-o json`."""

    def __init__(self, *, quiet: bool, picture: Path | None) -> None:
        self._console = Console(quiet=quiet)
        if not self._console.is_terminal:
            self._console = Console(quiet=quiet, width=PLAIN_WIDTH, no_color=True)
        self._painter = DemoPainter(glyphs=drawing.glyphs(self._console))
        self._picture = picture
        self._started = time.monotonic()
        self._steps: list[Step] = []
        self._created = 0

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:5.1f} s[/]  {text}", highlight=False)

    async def follow(self, demo: Demo, observed: Observation) -> bool:
        self._steps = demo.steps
        observed.pods.on_change(lambda old, _new: self._count(old is None))
        if self._console.is_terminal:
            with Live(console=self._console, refresh_per_second=8, transient=True) as live:
                painting = asyncio.create_task(self._repaint(live, observed))
                passed = await demo.run(lambda _step: self._save_picture(observed))
                painting.cancel()
        else:
            passed = await demo.run(lambda step: self._print(step, observed))
        self._close(passed=passed)
        return passed

    def summary(self) -> dict[str, object]:
        return {
            "steps": [
                {"step": step.expectation, "ok": step.passed, "detail": step.detail, "seconds": round(step.seconds, 2)}
                for step in self._steps
            ],
            "pods": self._created,
            "seconds": round(time.monotonic() - self._started, 1),
        }

    def _count(self, new: bool) -> None:  # noqa: FBT001  a listener's word
        self._created += new

    async def _repaint(self, live: Live, observed: Observation) -> None:
        while True:
            live.update(self._painter.screen(self._steps, observed.scene()))
            await asyncio.sleep(0.1)

    def _print(self, step: Step, observed: Observation) -> None:
        self._console.print(f"{'ok    ' if step.passed else 'FAILED'}  {step.expectation}", highlight=False)
        self._console.print(f"        {step.detail} ({step.seconds:.1f} s)", highlight=False)
        for grid in self._painter.grids(observed.scene().nodes):
            self._console.print(grid)
        self._save_picture(observed)

    def _save_picture(self, observed: Observation) -> None:
        if self._picture is None or not observed.claims.items():
            return
        paper = Console(record=True, width=PLAIN_WIDTH, file=io.StringIO(), force_terminal=True)
        paper.print(self._painter.screen(self._steps, observed.scene()))
        drawn = paper.export_svg(title="apportion demo")
        drawn = re.sub(r"@font-face {.*?}\s*", "", drawn, flags=re.DOTALL)  # no fonts from elsewhere
        self._picture.write_text(drawn, encoding="utf-8")

    def _close(self, *, passed: bool) -> None:
        if self._console.is_terminal:
            self._console.print(self._painter.results(self._steps))
        table = Table.grid(padding=(0, 2))
        table.add_row("steps passed", f"{sum(bool(step.passed) for step in self._steps)} of {len(self._steps)}")
        table.add_row("pods created", str(self._created))
        table.add_row("time", f"{time.monotonic() - self._started:.1f} s")
        if passed:
            table.add_row("next steps", "apportion up --detach, then use kubectl; apportion --help")
        self._console.print(Panel(table, title="demo passed" if passed else "demo FAILED", expand=False))
