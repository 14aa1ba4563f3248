"""The grid of every GPU in characters, for `demo` and `top`: which pod has which units, and which pods are pending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from apportion.view.scene import ShownGpu, ShownSlice

UNIT_WIDTH = 8
NARROW_UNIT_WIDTH = 5
WHOLE_UNITS = 8  # a GPU that is not in MIG mode is drawn as wide as most that are
PALETTE = ("dodger_blue2", "green4", "dark_orange3", "medium_purple3", "deep_pink4", "turquoise4")


class Glyphs(NamedTuple):
    """The characters of the drawing; boxes are the library's, which has a plain form of its own."""

    left: str
    right: str
    free: str
    mark: str
    passed: str
    failed: str
    spinner: str


UNICODE = Glyphs("▕", "▏", "·", "■", "✓", "✗", "dots")
ASCII = Glyphs("|", "|", ".", "#", "+", "x", "line")


def glyphs(console: Console) -> Glyphs:
    """Those that the terminal can show."""
    return UNICODE if console.encoding.startswith("utf") else ASCII


class Painter:
    """Gives every workload a colour and keeps it."""

    def __init__(self, *, unit_width: int = UNIT_WIDTH, glyphs: Glyphs = UNICODE) -> None:
        self._colours: dict[str, str] = {}
        self._unit_width = unit_width
        self._glyphs = glyphs

    def grids(
        self, nodes: Mapping[str, Sequence[ShownGpu]], *, legend: bool = False, notes: Mapping[str, str] | None = None
    ) -> list[RenderableType]:
        """One panel per node. `legend`: the pods by name below; `notes`: what is to be said of a node."""
        panels: list[RenderableType] = []
        for node, gpus in nodes.items():
            lines: list[RenderableType] = [self._gpu(index, gpu) for index, gpu in enumerate(gpus)]
            names = self._legend(gpus) if legend else None
            note = (notes or {}).get(node, "")
            title = Text.assemble((node, "bold"), (f"  {note}" if note else "", "yellow"))
            panels.append(
                Panel(
                    Group(*lines, *([names] if names else [])),
                    title=title,
                    title_align="left",
                    border_style="grey50",
                    expand=False,
                )
            )
        return panels

    def waiting(self, waiting: Iterable[tuple[str, str]]) -> list[RenderableType]:
        return [
            Text.assemble(("pending ", "yellow"), (name, "bold"), "  ", (reason, "dim")) for name, reason in waiting
        ]

    def _gpu(self, index: int, gpu: ShownGpu) -> RenderableType:
        line = Text(f"GPU {index} ", style="bold")
        line.append(self._glyphs.left, style="grey50")
        line.append_text(self._units(gpu) if gpu.units else self._whole(gpu))
        line.append(self._glyphs.right, style="grey50")
        line.append(gpu.model.removeprefix("NVIDIA "), style="dim")
        if not gpu.healthy:
            line.append(" unhealthy", style="bold red")
        return line

    def _units(self, gpu: ShownGpu) -> Text:
        line = Text()
        position = 0
        for piece in sorted(gpu.slices, key=lambda one: one.start):
            start, end = (min(unit, gpu.units) for unit in (piece.start, piece.start + piece.size))
            if start == end:
                continue  # a claim may name any position; what is outside the GPU is not drawn
            line.append_text(self._free(start - position))
            line.append_text(self._slice(piece, end - start))
            position = max(position, end)
        line.append_text(self._free(gpu.units - position))
        return line

    def _whole(self, gpu: ShownGpu) -> Text:
        width = WHOLE_UNITS * self._unit_width - 1
        if not gpu.owner:
            return Text("whole GPU, free".center(width) + " ", style="grey50")
        return Text.assemble((gpu.owner[:width].center(width), f"bold white on {self._colour(gpu.owner)}"), " ")

    def _slice(self, piece: ShownSlice, units: int) -> Text:
        width = units * self._unit_width - 1
        label = (piece.profile or "foreign")[:width].center(width)
        if not piece.owner:
            return Text.assemble((label, "white on grey30"), " ")
        colour = self._colour(piece.owner)
        style = f"bold white on {colour}" if piece.state == "inUse" else f"{colour} reverse dim"
        return Text.assemble((label, style), " ")

    def _legend(self, gpus: Sequence[ShownGpu]) -> RenderableType | None:
        owners: dict[str, list[str]] = {}
        for gpu in gpus:
            for piece in gpu.slices:
                if piece.owner:
                    owners.setdefault(piece.owner, []).append(piece.profile)
        parts: list[RenderableType] = []
        for owner, profiles in sorted(owners.items()):
            counts = {profile: profiles.count(profile) for profile in sorted(profiles)}
            told = " + ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
            parts.append(Text.assemble((f"{self._glyphs.mark} ", self._colour(owner)), f"{owner} ", (told, "dim")))
        return Columns(parts, padding=(0, 3)) if parts else None

    def _free(self, units: int) -> Text:
        return Text((self._glyphs.free.center(self._unit_width - 1) + " ") * max(units, 0), style="grey50")

    def _colour(self, owner: str) -> str:
        workload = owner.rsplit("-", 2)[0]
        return self._colours.setdefault(workload, PALETTE[len(self._colours) % len(PALETTE)])
