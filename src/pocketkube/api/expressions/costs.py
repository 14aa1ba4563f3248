"""What a call costs: a step, and more for long texts and large lists, so that a budget of steps bounds the time."""

from __future__ import annotations

from typing import Any

_CHARACTERS_PER_STEP = 100


def of_call(values: list[Any], most: int) -> int:
    """The steps of a call with these arguments. What costs more than `most` is not counted to its end."""
    cost = 1
    for value in values:
        if isinstance(value, str | bytes):
            cost += len(value) // _CHARACTERS_PER_STEP
        elif isinstance(value, list | dict):
            cost += _items(value, most - cost)
    return cost


def _items(value: Any, most: int) -> int:
    """The values in a list or map, at all levels."""
    count = 0
    level = [value]
    while level and count <= most:
        each = level.pop()
        inner = each.values() if isinstance(each, dict) else each
        count += len(each)
        level.extend(child for child in inner if isinstance(child, list | dict))
    return count
