"""The table that `nvidia-smi` prints, and its list (`-L`)."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.emulation.nvidia_smi.machine import Instance, Machine, VisibleGpu

WIDTH = 89
_COLUMNS, _MIG_COLUMNS = (41, 24, 22), (18, 34, 11, 23)
_HEADINGS = (
    (" GPU  Name                 Persistence-M", " Bus-Id          Disp.A", " Volatile Uncorr. ECC"),
    (" Fan  Temp   Perf          Pwr:Usage/Cap", "           Memory-Usage", " GPU-Util  Compute M."),
    ("", "", "               MIG M."),
)
_MIG_HEADINGS = (
    (" GPU  GI  CI  MIG ", "              Shared Memory-Usage ", "        Vol", "        Shared"),
    ("      ID  ID  Dev ", "                Shared BAR1-Usage ", " SM     Unc", " CE ENC  DEC  OFA  JPG "),
    ("", "", "        ECC", ""),
)
NOTHING = "No devices were found"


def bus_id(board: VisibleGpu) -> str:
    return f"00000000:{board.index + 1:02X}:00.0"


def listing(machine: Machine) -> str:
    lines: list[str] = []
    for board in machine.boards:
        lines.append(f"GPU {board.index}: {board.name} (UUID: {board.uuid})")
        lines += [
            f"  MIG {each.profile:<12}Device {number:2}: (UUID: {each.uuid})"
            for number, each in enumerate(board.instances)
        ]
    return _text(lines)


def table(machine: Machine) -> str:
    """Everything below the line with the time."""
    versions = f" NVIDIA-SMI {machine.driver:<22}Driver Version: {machine.driver:<15}CUDA Version: {machine.cuda}"
    lines = [_rule(WIDTH), _row([versions], (WIDTH,)), _rule(*_COLUMNS)]
    lines += [_row(cells, _COLUMNS) for cells in _HEADINGS]
    lines.append(_rule(*_COLUMNS, line="=", edge="|"))
    for board in machine.boards:
        lines += [*_board(board), _rule(*_COLUMNS)]
    if any(board.mig for board in machine.boards):
        lines += ["", *_instances(machine.boards)]
    return _text([*lines, "", *_processes()])


def _board(board: VisibleGpu) -> list[str]:
    memory = f"{board.used_mib}MiB / {board.memory_mib:6}MiB"
    utilisation = "N/A" if board.mig else "0%"
    mode = "Enabled" if board.mig else "Disabled"
    return [
        _row((f" {board.index:3}  {board.name[:26]:<28}  On ", f" {bus_id(board):>18} Off", f" {'0':>20}"), _COLUMNS),
        _row(
            (" N/A   30C    P0             40W /  N/A ", f" {memory:>22}", f" {utilisation:>7}      Default "), _COLUMNS
        ),
        _row(("", "", f" {mode:>20}"), _COLUMNS),
    ]


def _instances(boards: Sequence[VisibleGpu]) -> list[str]:
    lines = [_rule(WIDTH), _row([" MIG devices:"], (WIDTH,)), _rule(*_MIG_COLUMNS)]
    lines += [_row(cells, _MIG_COLUMNS) for cells in _MIG_HEADINGS]
    lines.append(_rule(*_MIG_COLUMNS, line="=", edge="|"))
    found = [(board, number, each) for board in boards for number, each in enumerate(board.instances)]
    for board, number, each in found:
        lines += [*_instance(board, number, each), _rule(*_MIG_COLUMNS)]
    if not found:
        lines += [_row([" No MIG devices found"], (WIDTH,)), _rule(WIDTH)]
    return lines


def _instance(board: VisibleGpu, number: int, each: Instance) -> list[str]:
    memory = f"{each.used_mib}MiB / {each.memory_mib:5}MiB"
    processors = str(each.multiprocessors or "-")
    return [
        _row(
            (
                f" {board.index:2}  {each.gi:3}   0  {number:2}  ",
                f" {memory:>29}    ",
                f" {processors:<8}0 ",
                "  -   -    -    -    - ",
            ),
            _MIG_COLUMNS,
        ),
        _row(("", f" {'0MiB / 32767MiB':>31}  ", "", ""), _MIG_COLUMNS),
    ]


def _processes() -> list[str]:
    return [
        _rule(WIDTH),
        _row([" Processes:"], (WIDTH,)),
        _row(["  GPU   GI   CI              PID   Type   Process name                        GPU Memory"], (WIDTH,)),
        _row(["        ID   ID                                                               Usage"], (WIDTH,)),
        _rule(WIDTH, line="=", edge="|"),
        _row(["  No running processes found"], (WIDTH,)),
        _rule(WIDTH),
    ]


def _rule(*widths: int, line: str = "-", edge: str = "+") -> str:
    return edge + "+".join(line * width for width in widths) + edge


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "|".join(cell.ljust(width)[:width] for cell, width in zip(cells, widths, strict=True)) + "|"


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
