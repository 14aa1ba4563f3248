"""Amounts in words, and in the units in which a Queue states them."""

from __future__ import annotations

_UNITS = {"gpu": (1000, "GPU"), "cpu": (1000, "core"), "memory": (10**6, "MB")}
_STATED_IN = {"gpu": 1000, "cpu": 1, "memory": 10**6}  # GPUs, millicores, 10^6 bytes
_SHOWN_DIGITS = 3
_UNLIMITED = "unlimited"


def said(resource: str, amount: int) -> str:
    """Such as "6.5 GPUs", "1 core"; -1 is unlimited."""
    return _UNLIMITED if amount < 0 else f"{number(resource, amount)} {_unit(resource, amount)}"


def used_of(resource: str, used: int, most: int, what: str = "") -> str:
    """Such as "6.5 of 8 GPUs"; `what` the second amount is, if that is to be said: "6.5 of a limit of 8 GPUs"."""
    of = f"a {what} of {said(resource, most)}" if what else said(resource, most)
    return f"{number(resource, used)} of {of}"


def number(resource: str, amount: int) -> str:
    """Without the unit, to three digits: 6.5."""
    return _UNLIMITED if amount < 0 else _decimal(amount, _UNITS[resource][0], _SHOWN_DIGITS)


def stated(resource: str, amount: int) -> str:
    """Exactly, as a quota or limit of a Queue: GPUs, millicores, 10^6 bytes."""
    return str(amount) if amount < 0 else _decimal(amount, _STATED_IN[resource])


def _unit(resource: str, amount: int) -> str:
    scale, unit = _UNITS[resource]
    return unit if resource == "memory" or amount == scale else f"{unit}s"


def _decimal(amount: int, scale: int, digits: int | None = None) -> str:
    """`scale` is a power of ten; what is beyond `digits` is rounded to the nearest."""
    most = len(str(scale)) - 1
    if digits is not None and digits < most:
        cut = 10 ** (most - digits)
        amount, scale, most = (amount + cut // 2) // cut, scale // cut, digits
    whole, rest = divmod(amount, scale)
    return f"{whole}.{rest:0{most}}".rstrip("0") if rest else str(whole)
