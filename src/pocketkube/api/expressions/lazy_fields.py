"""A value of CEL whose fields are computed when they are first read: the `variables` of a policy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any


class LazyFields:
    __slots__ = ("_compute", "_known", "names")

    def __init__(self, names: Collection[str], compute: Callable[[str], Any]) -> None:
        """`compute` may raise EvaluationError; it is asked again then."""
        self.names = frozenset(names)
        self._compute = compute
        self._known: dict[str, Any] = {}

    def read(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._compute(name)
        return self._known[name]
