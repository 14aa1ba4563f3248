"""`nvidia-smi` with its arguments: what it prints, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from apportion.emulation.nvidia_smi import queries, table
from apportion.emulation.nvidia_smi.machine import Machine

BAD_ARGUMENT, NO_DEVICE = 2, 6
HELP = """\
nvidia-smi of emulated GPUs

    nvidia-smi                                   the table, with MIG devices
    nvidia-smi -L                                all devices with their UUIDs
    nvidia-smi --query-gpu=FIELD,... --format=csv[,noheader][,nounits]
    -i, --id=ID                                  only this GPU, by number or UUID
"""


class UsageError(Exception):
    """Arguments that this nvidia-smi does not know."""


@dataclass
class Arguments:
    listing: bool = False
    help: bool = False
    fields: list[str] = field(default_factory=list)
    form: queries.Format | None = None
    gpu: str = ""


def run(machine: Machine, argv: Sequence[str], now: datetime) -> tuple[int, str]:
    """The exit code and the text."""
    try:
        asked = parse(argv)
        queries.check(asked.fields)
    except (UsageError, queries.UnknownFieldError) as error:
        return BAD_ARGUMENT, f"{error}\n"
    if asked.help:
        return 0, HELP
    shown = _chosen(machine, asked.gpu)
    if not shown.boards:
        return NO_DEVICE, f"{table.NOTHING}\n"
    if asked.listing:
        return 0, table.listing(shown)
    if asked.fields:
        stamp = now.strftime("%Y/%m/%d %H:%M:%S.000")
        return 0, queries.rows(machine, shown.boards, asked.fields, asked.form or queries.Format(), stamp)
    return 0, f"{now.strftime('%a %b %e %H:%M:%S %Y')}\n{table.table(shown)}"


def parse(argv: Sequence[str]) -> Arguments:
    found = Arguments()
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("-L", "--list-gpus"):
            found.listing = True
        elif name in ("-h", "--help"):
            found.help = True
        elif name in ("-i", "--id"):
            found.gpu = value if equals else next(words, "")
        elif name == "--query-gpu":
            listed = value if equals else next(words, "")
            found.fields = [each.strip() for each in listed.split(",") if each.strip()]
        elif name == "--format":
            found.form = _format(value if equals else next(words, ""))
        else:
            raise UsageError(f"Invalid combination of input arguments ({word}). Please run 'nvidia-smi -h' for help.")
    if found.fields and found.form is None:
        raise UsageError("--format= is missing: use --format=csv")
    return found


def _format(text: str) -> queries.Format:
    words = {word.strip() for word in text.split(",")}
    if "csv" not in words or words - {"csv", "noheader", "nounits"}:
        raise UsageError(f'"{text}" is not a format: use csv[,noheader][,nounits]')
    return queries.Format(header="noheader" not in words, units="nounits" not in words)


def _chosen(machine: Machine, gpu: str) -> Machine:
    if not gpu:
        return machine
    return msgspec.structs.replace(
        machine, boards=tuple(board for board in machine.boards if gpu in (str(board.index), board.uuid))
    )
