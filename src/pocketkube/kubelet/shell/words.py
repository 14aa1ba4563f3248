"""The values of one word of a command, put together from its parts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

_PIECE = re.compile(r"\S+")


class Pieces:
    """Text that stays together is added; text that is split begins a new value at every space.

    `hold` is told of the memory before it is used: a variable can be named many times in one word.
    """

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold = hold
        self._values: list[str] = []
        self._current: list[str] | None = None

    def add(self, text: str) -> None:
        self._hold(sys.getsizeof(text))
        if self._current is None:
            self._current = []
        self._current.append(text)

    def split(self, text: str) -> None:
        if text[:1].isspace():
            self._end()
        for match in _PIECE.finditer(text):
            if match.start() > 0 and text[match.start() - 1].isspace():
                self._end()
            self.add(match[0])
        if text[-1:].isspace():
            self._end()

    def values(self) -> list[str]:
        self._end()
        return self._values

    def _end(self) -> None:
        if self._current is not None:
            self._values.append("".join(self._current))
            self._current = None
