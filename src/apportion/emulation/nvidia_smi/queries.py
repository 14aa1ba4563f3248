"""`nvidia-smi --query-gpu=...`: one value per field and GPU, as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apportion.emulation.nvidia_smi import table
from apportion.emulation.nvidia_smi.machine import Machine, VisibleGpu

MISSING = "[N/A]"
TIMESTAMP = "timestamp"
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "mig.mode": "mig.mode.current",
    "temperature": "temperature.gpu",
}


@dataclass(frozen=True)
class Value:
    text: str
    unit: str = ""


@dataclass(frozen=True)
class Format:
    """`--format=csv,noheader,nounits`."""

    header: bool = True
    units: bool = True


class UnknownFieldError(Exception):
    """A field that no GPU has."""

    def __init__(self, field: str) -> None:
        super().__init__(f'Field "{field}" is not a valid field to query.')


def values(machine: Machine, board: VisibleGpu) -> dict[str, Value]:
    """Every field of one GPU but the time."""
    mode = Value("Enabled" if board.mig else "Disabled")
    nothing = Value(MISSING)
    return {
        "index": Value(str(board.index)),
        "count": Value(str(len(machine.boards))),
        "name": Value(board.name),
        "uuid": Value(board.uuid),
        "driver_version": Value(machine.driver),
        "pci.bus_id": Value(table.bus_id(board)),
        "memory.total": Value(str(board.memory_mib), "MiB"),
        "memory.used": Value(str(board.used_mib), "MiB"),
        "memory.free": Value(str(board.memory_mib - board.used_mib), "MiB"),
        "memory.reserved": Value("0", "MiB"),
        "mig.mode.current": mode,
        "mig.mode.pending": mode,
        "utilization.gpu": nothing if board.mig else Value("0", "%"),
        "utilization.memory": nothing if board.mig else Value("0", "%"),
        "temperature.gpu": Value("30"),
        "power.draw": Value("40.00", "W"),
        "power.limit": nothing,
        "pstate": Value("P0"),
        "fan.speed": nothing,
        "serial": nothing,
        "vbios_version": nothing,
        "compute_mode": Value("Default"),
        "persistence_mode": Value("Enabled"),
        "display_mode": Value("Disabled"),
        "display_active": Value("Disabled"),
        "ecc.mode.current": Value("Enabled"),
        "clocks.sm": nothing,
        "clocks.mem": nothing,
    }


def units() -> dict[str, str]:
    """The unit of each field that has one."""
    sample = Machine((VisibleGpu(0, "", "", 0),))
    return {field: value.unit for field, value in values(sample, sample.boards[0]).items() if value.unit}


def rows(machine: Machine, boards: Sequence[VisibleGpu], fields: Sequence[str], form: Format, now: str) -> str:
    """One line for each of these GPUs of a machine."""
    asked = [ALIASES.get(field, field) for field in fields]
    known = units()
    lines: list[str] = []
    if form.header:
        named = zip(fields, asked, strict=True)
        lines.append(", ".join(f"{field} [{known[name]}]" if name in known else field for field, name in named))
    for board in boards:
        found = values(machine, board) | {TIMESTAMP: Value(now)}
        lines.append(", ".join(_cell(found, name, form) for name in asked))
    return "".join(f"{line}\n" for line in lines)


def check(fields: Sequence[str]) -> None:
    sample = Machine((VisibleGpu(0, "", "", 0),))
    known = {TIMESTAMP, *ALIASES, *values(sample, sample.boards[0])}
    for field in fields:
        if field not in known:
            raise UnknownFieldError(field)


def _cell(found: dict[str, Value], field: str, form: Format) -> str:
    value = found[field]
    return f"{value.text} {value.unit}" if value.unit and form.units else value.text
