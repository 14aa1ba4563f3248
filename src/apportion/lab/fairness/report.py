"""Fair shares for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from rich.table import Table
from rich.text import Text

from apportion.core.queues.fair_shares import UNLIMITED
from apportion.lab import reporting
from apportion.lab.fairness.running import DividedCase


def as_json(results: Sequence[DividedCase]) -> str:
    return json.dumps({"cases": [{"shares": result.shares} for result in results]}, indent=2)


def show(results: Sequence[DividedCase]) -> None:
    """A line per queue, in the order of the file."""
    table = Table(box=None, pad_edge=False)
    for heading in ("CASE", "QUEUE", "PARENT"):
        table.add_column(heading, overflow="fold")
    for heading in ("PRIORITY", "QUOTA", "LIMIT", "WEIGHT", "REQUEST", "FAIR SHARE"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, result in enumerate(results):
        for queue in result.case.queues:
            table.add_row(
                str(number),
                Text(queue.name),
                Text(queue.parent or "-"),
                str(queue.priority),
                _amount(queue.quota),
                _amount(queue.limit),
                _weight(queue.weight),
                str(queue.request),
                str(result.shares[queue.name]),
            )
    reporting.show(table)


def _amount(value: int) -> str:
    return "unlimited" if value == UNLIMITED else str(value)


def _weight(value: int | Fraction) -> str:
    """To six digits: what is read exactly can be very long."""
    return f"{Decimal(value.numerator) / value.denominator:.6g}"
