"""How the story looks: the grid of every GPU, who waits and why, and the promises kept so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from apportion.cli.demo.story import Step
    from apportion.cli.demo.world import Gpu, Slice

UNIT_WIDTH = 8
PALETTE = ("dodger_blue2", "green4", "dark_orange3", "medium_purple3", "deep_pink4", "turquoise4")


class Painter:
    """Gives every workload a colour and keeps it."""

    def __init__(self) -> None:
        self._colours: dict[str, str] = {}

    def screen(self, steps: list[Step], nodes: dict[str, list[Gpu]], waiting: list[tuple[str, str]]) -> RenderableType:
        return Group(self.promises(steps), *self.grids(nodes), *self.waiting(waiting))

    def promises(self, steps: list[Step]) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column()
        table.add_column(style="dim", no_wrap=False)
        for step in steps:
            table.add_row(_mark(step), Text(step.promise, style="bold" if step.kept is None else ""), step.detail)
        return table

    def grids(self, nodes: dict[str, list[Gpu]]) -> list[RenderableType]:
        return [
            Panel(
                Group(*(self._gpu(index, gpu) for index, gpu in enumerate(gpus))),
                title=f"[bold]{node}[/]",
                title_align="left",
                border_style="grey50",
                expand=False,
            )
            for node, gpus in nodes.items()
        ]

    def waiting(self, waiting: list[tuple[str, str]]) -> list[RenderableType]:
        return [Text.assemble(("waits ", "yellow"), (name, "bold"), "  ", (reason, "dim")) for name, reason in waiting]

    def _gpu(self, index: int, gpu: Gpu) -> RenderableType:
        line = Text(f"GPU {index} ", style="bold")
        line.append("▕", style="grey50")
        position = 0
        for piece in sorted(gpu.slices, key=lambda one: one.start):
            line.append_text(_free(piece.start - position))
            line.append_text(self._slice(piece))
            position = piece.start + piece.size
        line.append_text(_free(gpu.units - position))
        line.append("▏", style="grey50")
        line.append(gpu.model.removeprefix("NVIDIA "), style="dim")
        return line

    def _slice(self, piece: Slice) -> Text:
        width = piece.size * UNIT_WIDTH - 1
        colour = self._colour(piece.owner)
        style = f"bold white on {colour}" if piece.state == "inUse" else f"{colour} reverse dim"
        return Text.assemble((piece.profile[:width].center(width), style), " ")

    def _colour(self, owner: str) -> str:
        workload = owner.rsplit("-", 2)[0]
        return self._colours.setdefault(workload, PALETTE[len(self._colours) % len(PALETTE)])


def _free(units: int) -> Text:
    return Text(("·".center(UNIT_WIDTH - 1) + " ") * max(units, 0), style="grey50")


def _mark(step: Step) -> RenderableType:
    if step.kept is None:
        return Spinner("dots", style="cyan") if step.begun else Text("·", style="dim")
    return Text("✓", style="bold green") if step.kept else Text("✗", style="bold red")
