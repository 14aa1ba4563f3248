"""How the story looks: the promises kept so far, above the grid of every GPU and who waits and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from apportion.cli import drawing
from apportion.view.scene import Gpu

if TYPE_CHECKING:
    from apportion.cli.demo.story import Step


class Painter(drawing.Painter):
    """Draws the story."""

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


def _mark(step: Step) -> RenderableType:
    if step.kept is None:
        return Spinner("dots", style="cyan") if step.begun else Text("·", style="dim")
    return Text("✓", style="bold green") if step.kept else Text("✗", style="bold red")
