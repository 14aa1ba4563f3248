"""The label keys by which pods keep others away: other labels make no difference to anti-affinity."""

from __future__ import annotations

from collections import Counter

from apportion.apis.request import Request


class LabelCounts:
    """How many terms select by each key."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._keys: frozenset[str] = frozenset()

    def change(self, request: Request, number: int) -> frozenset[str]:
        """Count the terms of a pod that comes (1) or goes (-1); all keys that count then."""
        for term in request.rules.anti_affinity:
            for key in term.label_selector.keys if term.label_selector is not None else ():
                self._counts[key] += number
        keys = frozenset(key for key, count in self._counts.items() if count)
        if keys != self._keys:
            self._keys = keys
        return self._keys
