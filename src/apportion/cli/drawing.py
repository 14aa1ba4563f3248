"""Every GPU in characters, for `demo` and `top`: which pod has which units or how much memory, and which are pending.

A GPU that is not in MIG mode is a bar. Those who share it have parts of the bar by their memory, with numbers under
which they are listed below it, so that the drawing can be read without colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from apportion.apis.shares import decimal
from apportion.view.scene import ShownGpu, ShownShare, ShownSlice

UNIT_WIDTH = 8
NARROW_UNIT_WIDTH = 5
MILLI = 1000
LISTED_SHARES = 20  # pods of one shared GPU that are listed by name
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
    part: str  # fills what a pod has of a bar


UNICODE = Glyphs("▕", "▏", "·", "■", "✓", "✗", "dots", "━")
ASCII = Glyphs("|", "|", ".", "#", "+", "x", "line", "=")


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
            lines: list[RenderableType] = []
            for index, gpu in enumerate(gpus):
                lines.append(self._gpu(index, gpu))
                lines += [self._sharers(gpu)] if gpu.shared and legend else []
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
        line.append_text(self._units(gpu) if gpu.units else self._shared(gpu) if gpu.shared else self._whole(gpu))
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
        label = gpu.owner
        if gpu.used_mib is not None:
            label += f", {gpu.used_mib} of {gpu.memory_mib} MiB used"
        label = label if len(label) <= width else gpu.owner[:width]
        return Text.assemble((label.center(width), f"bold white on {self._colour(gpu.owner)}"), " ")

    def _shared(self, gpu: ShownGpu) -> Text:
        """Parts by memory; the end of each is a blank."""
        columns = WHOLE_UNITS * self._unit_width
        line = Text()
        taken = position = 0
        for number, share in enumerate(gpu.shares, 1):
            taken += share.milli
            end = min(columns, max(position, columns * taken // MILLI))
            line.append_text(self._share(number, share, end - position))
            position = end
        if not gpu.shares:
            line.append("reserved".center(columns), style="grey50")
            position = columns
        free = (self._glyphs.free.center(self._unit_width - 1) + " ") * WHOLE_UNITS
        line.append(free[position:], style="grey50")
        return line

    def _share(self, number: int, share: ShownShare, columns: int) -> Text:
        """As many columns, the last of them blank; without room for its number it is only a mark."""
        colour = self._colour(share.owner)
        style = f"bold white on {colour}" if share.bound else f"{colour} reverse dim"
        if not columns:
            return Text()
        width = max(columns - 1, 1)
        labels = (f" {number} {_amount(share)} ", f" {number} ", str(number), "")
        label = next(label for label in labels if len(label) < columns)
        return Text.assemble((label.center(width, self._glyphs.part), style), " " * (columns - width))

    def _sharers(self, gpu: ShownGpu) -> RenderableType:
        """The pods by number, and what is left."""
        parts: list[RenderableType] = [
            Text.assemble(
                (f"{number} ", self._colour(share.owner)),
                f"{share.owner} ",
                (", ".join(_facts(share)), "bold red" if share.exceeded else "dim"),
            )
            for number, share in enumerate(gpu.shares[:LISTED_SHARES], 1)
        ]
        if len(gpu.shares) > LISTED_SHARES:
            parts.append(Text(f"and {len(gpu.shares) - LISTED_SHARES} more"))
        told = [*_state(gpu), *([gpu.uuid] if gpu.slot and gpu.uuid else ())]
        lines = [Columns(parts, padding=(0, 3))] if parts else []
        return Padding(Group(*lines, Text("; ".join(told), style="dim")), (0, 0, 0, len("GPU 0 ") + 1))

    def _slice(self, piece: ShownSlice, units: int) -> Text:
        width = units * self._unit_width - 1
        label = (piece.profile or "foreign")[:width].center(width)
        if not piece.owner:
            return Text.assemble((label, "white on grey30"), " ")
        colour = self._colour(piece.owner)
        style = f"bold white on {colour}" if piece.state == "inUse" else f"{colour} reverse dim"
        return Text.assemble((label, style), " ")

    def _legend(self, gpus: Sequence[ShownGpu]) -> RenderableType | None:
        owners: dict[str, list[ShownSlice]] = {}
        for gpu in gpus:
            for piece in gpu.slices:
                if piece.owner:
                    owners.setdefault(piece.owner, []).append(piece)
        parts: list[RenderableType] = [
            Text.assemble((f"{self._glyphs.mark} ", self._colour(owner)), f"{owner} ", (_slices(pieces), "dim"))
            for owner, pieces in sorted(owners.items())
        ]
        return Columns(parts, padding=(0, 3)) if parts else None

    def _free(self, units: int) -> Text:
        return Text((self._glyphs.free.center(self._unit_width - 1) + " ") * max(units, 0), style="grey50")

    def _colour(self, owner: str) -> str:
        workload = owner.rsplit("-", 2)[0]
        return self._colours.setdefault(workload, PALETTE[len(self._colours) % len(PALETTE)])


def _amount(share: ShownShare) -> str:
    if share.mib:
        return f"{share.mib} MiB"
    return f"{decimal(share.milli)} GPU" if share.milli else "of unknown size"


def _facts(share: ShownShare) -> Iterator[str]:
    yield _amount(share)
    if not share.bound:
        yield "being bound"
    if share.used_mib is not None:
        yield f"{share.used_mib} used" if share.mib else f"{share.used_mib} MiB used"
    if share.exceeded:
        yield "above its share"


def _slices(pieces: Sequence[ShownSlice]) -> str:
    """The slices of one pod by profile, and the memory that it uses if that is known of all."""
    counts = Counter(sorted(piece.profile for piece in pieces))
    told = " + ".join(f"{count} x {name}" if count > 1 else name for name, count in counts.items())
    used = [piece.used_mib for piece in pieces if piece.used_mib is not None]
    return f"{told}, {sum(used)} MiB used" if len(used) == len(pieces) else told


def _state(gpu: ShownGpu) -> tuple[str, ...]:
    pod = f"reservation pod {gpu.reservation}"
    if gpu.reserved_elsewhere:
        return (f"takes no more shares: {pod} holds another GPU",)
    left = f"{gpu.free_mib} of {gpu.memory_mib} MiB free" if gpu.memory_mib else f"{decimal(gpu.free_milli)} GPU free"
    return left, pod if gpu.reservation else "no reservation pod yet"
