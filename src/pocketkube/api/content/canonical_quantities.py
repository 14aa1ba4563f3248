"""How the server writes quantities back: in their canonical form, keeping the style of their suffix.

`1000m` becomes `1`, `1024Mi` becomes `1Gi`, `0.5` becomes `500m`. Reading is `apis.quantity`'s job.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from apportion.apis import quantity

RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_EXPONENT = re.compile(r"[eE][+-]?[0-9]+$")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MILLI = 10**6  # nanos


def canonical(value: str | float, *, milli: bool = False) -> str:
    """The canonical spelling, rounded up to a thousandth where the server does that (resource lists)."""
    text = value if isinstance(value, str) else repr(value)
    quantity.nanos(text)  # refuses what is too long to be remembered
    return _canonical(text, milli=milli)


@lru_cache(maxsize=4096)
def _canonical(text: str, *, milli: bool) -> str:
    nanos = quantity.nanos(text)
    if milli:
        nanos = -(-nanos // _MILLI) * _MILLI
    amount = Fraction(nanos, quantity.NANOS)
    if text.endswith("i") and abs(amount) >= 1024 and amount.denominator == 1:  # noqa: PLR2004
        return _binary(int(amount))
    if _EXPONENT.search(text):
        return _exponent(amount)
    return quantity.canonical(amount)


def _binary(units: int) -> str:
    step = 0
    while units % 1024 == 0 and step < len(_BINARY) - 1:
        units //= 1024
        step += 1
    return f"{units}{_BINARY[step]}"


def _exponent(amount: Fraction) -> str:
    exponent = 0
    while amount.denominator != 1:
        amount *= 1000
        exponent -= 3
    units = int(amount)
    while units and units % 1000 == 0:
        units //= 1000
        exponent += 3
    return f"{units}e{exponent}" if exponent else str(units)
