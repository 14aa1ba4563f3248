"""Benchmark results for people and for programs."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from apportion.apis.errors import InputError

Run = dict[str, Any]

MOST_SEEDS = 10_000
_WIDTH = 120  # of a table that goes into a file


def as_json(runs: Sequence[Run]) -> str:
    return msgspec.json.format(msgspec.json.encode({"runs": runs}), indent=2).decode()


def means(runs: Iterable[Run], keys: Sequence[str], numbers: Sequence[str]) -> list[Run]:
    """Runs that agree on `keys` brought together, with the means of `numbers`."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    return [
        dict(zip(keys, group, strict=True))
        | {"runs": len(members)}
        | {number: _mean(member[number] for member in members) for number in numbers}
        for group, members in groups.items()
    ]


def table(title: str, rows: Sequence[Run], columns: Sequence[tuple[str, str]]) -> Table:
    """One line per row; numbers to two places, at the right."""
    made = Table(title=title, title_justify="left")
    for _, heading in columns:
        words = heading in {"variant", "policy", "mix", "method", "case", "measure"}
        made.add_column(heading, justify="left" if words else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(_shown(row.get(key)) for key, _ in columns))
    return made


def show(made: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(made)


def say(line: str) -> None:
    """A remark beside the results."""
    Console(stderr=True, highlight=False).print(line)


def load_line() -> str:
    """How busy the machine is: speeds mean nothing without it."""
    one, five, fifteen = os.getloadavg()
    return f"load average {one:.2f} {five:.2f} {fifteen:.2f} on {os.cpu_count()} cores"


@contextmanager
def progress(title: str, total: int) -> Iterator[Any]:
    """A bar on stderr that is only drawn on a terminal; gives a function to advance it."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=total)
        pending = 0

        def advance(steps: int) -> None:
            nonlocal pending
            pending += steps
            if pending >= total // 200 + 1:
                bar.advance(task, pending)
                pending = 0

        yield advance


def numbers_of(text: str, field: str) -> list[int]:
    """Seeds as people write them: `42`, `42-46` or `1,3,5-7`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise InputError(field, text, 'must be numbers or ranges such as "42-46" or "1,3"', code="InvalidSeeds")
        if int(last if dash else first) - int(first) >= MOST_SEEDS:
            raise InputError(field, text, f"use at most {MOST_SEEDS} numbers", code="InvalidSeeds")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _mean(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.fmean(known) if known else None


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
