"""Cells that many tables share: names, ages, selectors, containers, short lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from pocketkube.api.tables import durations

Obj = dict[str, Any]
Row = Callable[[Obj, datetime], list[Any]]

NONE = "<none>"
UNSET = "<unset>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
_SHOWN = 3


def selector_text(selector: Obj | None) -> str:
    """A label selector as text: `a=b,c in (d,e),!f`."""
    if selector is None:
        return NONE
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
        match expression.get("operator"):
            case "In":
                terms.append(f"{key} in ({values})")
            case "NotIn":
                terms.append(f"{key} notin ({values})")
            case "Exists":
                terms.append(key)
            case "DoesNotExist":
                terms.append(f"!{key}")
    return ",".join(sorted(terms)) or NONE


def labels_text(labels: Obj | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def name(obj: Obj) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def age(obj: Obj, now: datetime) -> str:
    return durations.age((obj.get("metadata") or {}).get("creationTimestamp"), now)


def part(obj: Obj, name: str) -> Obj:
    part: Obj = obj.get(name) or {}
    return part


def containers(template: Obj | None) -> list[str]:
    """Names and images of a template's containers: two cells."""
    listed = ((template or {}).get("spec") or {}).get("containers") or []
    return [",".join(str(each.get(field, "")) for each in listed) for field in ("name", "image")]


def few(items: Iterable[str]) -> str:
    found = list(items)
    if not found:
        return UNSET
    more = f" + {len(found) - _SHOWN} more..." if len(found) > _SHOWN else ""
    return ",".join(found[:_SHOWN]) + more
