"""Rules for labels and for everything that selects by them."""

from __future__ import annotations

from typing import Any

from pocketkube.api.validation import name_rules
from pocketkube.api.validation.problems import Problems

Obj = dict[str, Any]


def labels(found: Problems, path: str, given: Obj) -> None:
    for key, value in given.items():
        found.all_of(path, key, name_rules.qualified_name(key))
        found.all_of(path, value, name_rules.label_value(value))


def label_selector(found: Problems, path: str, selector: Obj) -> bool:
    """A LabelSelector; answers whether it can be used."""
    before = len(found.causes)
    labels(found, f"{path}.matchLabels", selector.get("matchLabels") or {})
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator"), expression.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                found.required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                found.forbidden(f"{here}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        else:
            found.invalid(f"{here}.operator", operator or "", "not a valid selector operator")
        found.all_of(f"{here}.key", expression.get("key") or "", name_rules.qualified_name(expression.get("key") or ""))
        for position, value in enumerate(values):
            found.all_of(f"{here}.values[{position}]", value, name_rules.label_value(value))
    return len(found.causes) == before


def matches(selector: Obj, given: Obj) -> bool:
    """Whether labels fulfil a valid selector."""
    if any(given.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key"), expression.get("values") or ()
        fulfilled = {
            "In": key in given and given.get(key) in values,
            "NotIn": given.get(key) not in values,
            "Exists": key in given,
            "DoesNotExist": key not in given,
        }
        if not fulfilled.get(expression.get("operator") or "", False):
            return False
    return True
