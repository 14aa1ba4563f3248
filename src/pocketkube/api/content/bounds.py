"""How many values a body may have and how deep they may be nested, checked before or right after they are built."""

from __future__ import annotations

import re
from typing import Any

from pocketkube.api import limits, status

_SEPARATORS = (b",", b"{", b"[")
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def check_count(body: bytes) -> None:
    """Before anything is built: a small body can hold a million empty lists."""
    if sum(map(body.count, _SEPARATORS)) <= limits.MAX_VALUES:
        return
    without_texts = _TEXT.sub(b"", body)  # commas in texts separate nothing
    if sum(map(without_texts.count, _SEPARATORS)) > limits.MAX_VALUES:
        raise status.too_many_values(limits.MAX_VALUES)


def check_depth(value: Any) -> None:
    """Refuse nesting that would exhaust the stack of whoever walks the object."""
    level: list[Any] = [value]
    for _ in range(limits.MAX_DEPTH):
        following: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                following.extend(child for child in each.values() if isinstance(child, (dict, list)))
            elif isinstance(each, list):
                following.extend(child for child in each if isinstance(child, (dict, list)))
        if not following:
            return
        level = following
    raise status.bad_request(f"the body of the request is nested deeper than {limits.MAX_DEPTH} levels")
