"""Lengths of time as `sleep` reads them."""

from __future__ import annotations

import re

FOREVER = 10 * 365 * 86_400.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def seconds(text: str) -> float | None:
    """The length of `5`, `1.5m`, `infinity`; None if it is none."""
    if text in ("infinity", "inf"):
        return FOREVER
    match = _DURATION.fullmatch(text)
    return min(float(match[1]) * _UNITS[match[2]], FOREVER) if match else None
