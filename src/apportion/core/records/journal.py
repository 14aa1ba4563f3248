"""Trial changes: what undoes each change since a mark, so that trying something out costs what it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from apportion.apis.errors import LedgerError


class Mark(NamedTuple):
    """A moment to come back to."""

    serial: int
    length: int


class Journal:
    """The inverses of changes, as long as there is a mark to roll back to. Inverses are not noted themselves."""

    def __init__(self) -> None:
        self._inverses: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._marks: list[Mark] = []
        self._serial = 0

    def note(self, inverse: Callable[..., None], *arguments: Any) -> None:
        if self._marks:
            self._inverses.append((inverse, arguments))

    def checkpoint(self) -> Mark:
        self._serial += 1
        mark = Mark(self._serial, len(self._inverses))
        self._marks.append(mark)
        return mark

    def rollback(self, mark: Mark) -> None:
        """Undo everything since the mark. Marks set after it are gone too."""
        self._close(mark)
        inverses, self._inverses[mark.length :] = self._inverses[mark.length :], []
        kept, self._marks = self._marks, []
        try:
            for inverse, arguments in reversed(inverses):
                inverse(*arguments)
        finally:
            self._marks = kept

    def release(self, mark: Mark) -> None:
        """Keep everything since the mark."""
        self._close(mark)
        if not self._marks:
            self._inverses.clear()

    def _close(self, mark: Mark) -> None:
        if mark not in self._marks:
            raise LedgerError("StaleMark", "this mark was released or rolled back before")
        del self._marks[self._marks.index(mark) :]
