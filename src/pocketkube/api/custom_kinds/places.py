"""Places in an object, written out only when somebody is told about them: `spec.list[3].name`.

The text of a place contains the names of everything above it. A name can be a megabyte long, so texts are not made
for every field of an object on the way.
"""

from __future__ import annotations


class Place:
    """A place within another one."""

    __slots__ = ("_above", "_step")

    def __init__(self, above: Place | None = None, step: str | int = "") -> None:
        self._above = above
        self._step = step

    def field(self, name: str) -> Place:
        return Place(self, name)

    def item(self, index: int) -> Place:
        return Place(self, index)

    def __bool__(self) -> bool:
        """Whether this is not the whole object."""
        return self._above is not None

    def __str__(self) -> str:
        steps: list[str] = []
        place = self
        while place._above is not None:
            steps.append(f"[{place._step}]" if isinstance(place._step, int) else f".{place._step}")
            place = place._above
        return "".join(reversed(steps)).removeprefix(".")


ROOT = Place()
