"""Amounts in words."""

from __future__ import annotations

from fractions import Fraction

_UNITS = {"gpu": (1000, "GPU"), "cpu": (1000, "core"), "memory": (10**6, "MB")}


def said(resource: str, amount: int) -> str:
    """Such as "6.5 GPUs", "1 core"; -1 is unlimited."""
    if amount < 0:
        return "unlimited"
    scale, unit = _UNITS[resource]
    value = Fraction(amount, scale)
    text = f"{float(value):.3f}".rstrip("0").rstrip(".") if value.denominator > 1 else str(value)
    return f"{text} {unit}" + ("" if value == 1 or resource == "memory" else "s")
