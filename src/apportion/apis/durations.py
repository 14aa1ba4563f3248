"""Durations as Kubernetes objects state them: `90s`, `10m`, `1h30m`. Read exactly, in whole milliseconds."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from apportion.apis.errors import InputError

PATTERN = r"^(0|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)$"
"""Also for schemas: without a sign, because a negative duration means nothing here."""
LONGEST = 32
FIX = "use a duration such as 90s, 10m or 1h30m"

_MILLISECONDS = {
    "ns": Fraction(1, 10**6),
    "us": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_WHOLE = re.compile(PATTERN, re.ASCII)
_PART = re.compile(r"([0-9.]+)(ns|us|ms|s|m|h)", re.ASCII)


def milliseconds(text: str, *, field: str = "duration") -> int:
    """Rounded up: what is protected for a nanosecond is protected."""
    if len(text) > LONGEST or _WHOLE.fullmatch(text) is None:
        raise InputError(field, text, FIX)
    total = sum((Fraction(Decimal(number)) * _MILLISECONDS[unit] for number, unit in _PART.findall(text)), Fraction())
    return -(-total.numerator // total.denominator)
