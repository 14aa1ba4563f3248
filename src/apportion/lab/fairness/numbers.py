"""Numbers as they are written: a float could change them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MOST_DIGITS = 1000
LARGEST_EXPONENT = 1000

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE](?P<exponent>[+-]?[0-9]+))?", re.ASCII)


@dataclass(frozen=True, repr=False)
class WrittenNumber:
    """What is not an integer of at most `MOST_DIGITS`; also NaN and Infinity, which JSON readers know."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def exact(self) -> Fraction | None:
        """None if it is not finite, or so long that computing with it would take too much time."""
        match = _NUMBER.fullmatch(self.text)
        if match is None or len(self.text) > MOST_DIGITS or abs(int(match["exponent"] or 0)) > LARGEST_EXPONENT:
            return None
        return Fraction(self.text)


def integer(text: str) -> int | WrittenNumber:
    return int(text) if len(text) <= MOST_DIGITS else WrittenNumber(text)
