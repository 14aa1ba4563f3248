"""Text that can be printed and put into JSON: what is not Unicode is shown by its escape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apportion.apis.errors import InputError


def printable(text: str) -> str:
    """File names and YAML escapes can hold bytes or halves of characters that no encoding has."""
    return text.encode("utf-8", "backslashreplace").decode()


def check(raw: Any) -> None:
    """Raise InputError for the first key or value of plain data that is no Unicode text."""
    for field, text in _texts(raw):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(field or "scenario", text, "is not Unicode text: it has half a character") from None


def _texts(raw: Any) -> Iterator[tuple[str, str]]:
    """All of them with their fields; each object once, since YAML aliases may repeat it or contain themselves."""
    left: list[tuple[str, Any]] = [("", raw)]
    seen: set[int] = set()
    while left:
        field, value = left.pop()
        if isinstance(value, str):
            yield field, value
        elif isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, list):
                left += [(f"{field}[{number}]", each) for number, each in enumerate(value)]
                continue
            for key, each in value.items():
                name = printable(str(key))
                below = f"{field}.{name}" if field else name
                left += [(below, each), (below, key)]
