"""Kubernetes quantities, read exactly.

An amount such as `500m`, `1.5Gi` or `3e2` is a decimal number with a suffix. As in Kubernetes the
finest grain is one nano (finer amounts are rounded away from zero) and the largest amount is 2^63-1
(larger ones are capped). Sums are made in whole nanos, so nothing is lost on the way to a ledger.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from apportion.apis.errors import QuantityError

__all__ = ["QuantityError", "canonical", "exact_int", "milli", "nanos", "parse", "whole"]

NANOS = 10**9
NANOS_PER_MILLI = 10**6
LARGEST = 2**63 - 1

_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_CANONICAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_LONGEST = 64
_LARGEST_EXPONENT = 99


def parse(value: str | float) -> Fraction:
    """The amount that a quantity means."""
    return Fraction(nanos(value), NANOS)


def milli(value: str | float) -> int:
    """The amount in thousandths, rounded up and capped as all amounts are: how Kubernetes counts CPU."""
    return min(-(-nanos(value) // NANOS_PER_MILLI), LARGEST)


def whole(value: str | float) -> int:
    """The amount in whole units, rounded up: how Kubernetes counts everything else."""
    return -(-nanos(value) // NANOS)


def exact_int(value: str | float) -> int:
    """The amount in whole units, for things that cannot be divided."""
    units, rest = divmod(nanos(value), NANOS)
    if rest:
        raise QuantityError(value, "must be a whole number")
    return units


def nanos(value: str | float) -> int:
    """The amount in whole nanos, the grain in which requests are added up."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(value, 'must be a quantity such as "2", "500m" or "1Gi"')
    return _read(value if isinstance(value, str) else str(value))


def canonical(amount: Fraction | int) -> str:
    """The shortest spelling without fraction digits, as Kubernetes writes decimal quantities."""
    scaled = Fraction(amount) * NANOS
    if scaled.denominator != 1:
        raise QuantityError(str(amount), "must not be finer than one nano")
    units = int(scaled)
    if units == 0:
        return "0"
    step = 0
    while units % 1000 == 0 and step < len(_CANONICAL) - 1:
        units //= 1000
        step += 1
    return f"{units}{_CANONICAL[step]}"


@lru_cache(maxsize=4096)
def _read(text: str) -> int:
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(text, 'must be a number with a suffix such as "2", "500m", "1Gi" or "3e2"')
    part = match["part"] or ""
    digits = Fraction(int((match["whole"] or "0") + part), 10 ** len(part))
    amount = digits * _scale(text, match) * NANOS
    units = min(-(-amount.numerator // amount.denominator), LARGEST * NANOS)
    return -units if match["sign"] == "-" else units


def _scale(text: str, match: re.Match[str]) -> Fraction:
    if match["exponent"] is None:
        return _SUFFIX[match["suffix"] or ""]
    exponent = int(match["exponent"])
    if abs(exponent) > _LARGEST_EXPONENT:
        raise QuantityError(text, f"the exponent must be between -{_LARGEST_EXPONENT} and {_LARGEST_EXPONENT}")
    return Fraction(10) ** exponent
