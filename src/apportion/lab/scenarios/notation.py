"""Short notations for taints, tolerations and label expressions, as kubectl writes them."""

from __future__ import annotations

import re
from typing import Any

from apportion.apis.errors import InputError

_TAINT = re.compile(r"(?P<key>[^=:\s]+)(?:=(?P<value>[^:\s]*))?(?::(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)")
_COMPARED = re.compile(r"(?P<key>[^=!<>\s]+)\s*(?P<operator>=|==|!=|<|>)\s*(?P<value>[^=!<>\s]*)")
_PRESENT = re.compile(r"(?P<absent>!?)(?P<key>[^=!<>\s()]+)")
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", "<": "Lt", ">": "Gt"}

Json = dict[str, Any]


def taint(text: str, field: str) -> Json:
    """`key=value:Effect` or `key:Effect`."""
    match = _TAINT.fullmatch(text)
    if match is None or match["effect"] is None:
        raise InputError(field, text, "must look like key=value:NoSchedule or key:NoSchedule")
    return {"key": match["key"], "value": match["value"] or "", "effect": match["effect"]}


def toleration(text: str, field: str) -> Json:
    """A taint's text; without a value any value is tolerated, without an effect any effect."""
    match = _TAINT.fullmatch(text)
    if match is None:
        raise InputError(field, text, "must look like key, key=value or key=value:NoSchedule")
    found = {"key": match["key"], "effect": match["effect"] or ""}
    if match["value"] is None:
        return {**found, "operator": "Exists"}
    return {**found, "operator": "Equal", "value": match["value"]}


def requirement(text: str, field: str) -> Json:
    """`disk in (ssd, nvme)`, `disk notin (hdd)`, `disk=ssd`, `disk!=hdd`, `gpus>3`, `disk` or `!disk`."""
    stripped = text.strip()
    if match := _SET.fullmatch(stripped):
        values = [value.strip() for value in match["values"].split(",")]
        return {"key": match["key"], "operator": _OPERATORS[match["operator"]], "values": values}
    if match := _COMPARED.fullmatch(stripped):
        return {"key": match["key"], "operator": _OPERATORS[match["operator"]], "values": [match["value"]]}
    if match := _PRESENT.fullmatch(stripped):
        return {"key": match["key"], "operator": "DoesNotExist" if match["absent"] else "Exists"}
    raise InputError(field, text, 'must look like "disk in (ssd, nvme)", disk=ssd, disk or "!disk"')
