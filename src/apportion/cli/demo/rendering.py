"""The screen of the demo: results of the steps, the grid of every GPU, and pending pods with their reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from apportion.cli import drawing
from apportion.view.scene import Scene

if TYPE_CHECKING:
    from apportion.cli.demo.steps import Step


class DemoPainter(drawing.Painter):
    """Draws the demo."""

    def screen(self, steps: list[Step], shown: Scene) -> RenderableType:
        return Group(self.results(steps), *self.grids(shown.nodes), *self.waiting(shown.waiting))

    def results(self, steps: list[Step]) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column()
        table.add_column(style="dim", no_wrap=False)
        for step in steps:
            table.add_row(
                self._mark(step), Text(step.expectation, style="bold" if step.passed is None else ""), step.detail
            )
        return table

    def _mark(self, step: Step) -> RenderableType:
        glyphs = self._glyphs
        if step.passed is None:
            return Spinner(glyphs.spinner, style="cyan") if step.started else Text(glyphs.free, style="dim")
        return Text(glyphs.passed, style="bold green") if step.passed else Text(glyphs.failed, style="bold red")
