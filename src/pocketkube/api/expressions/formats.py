"""Formats by name: `!format.dns1123Label().validate(object.metadata.name).hasValue()`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

from pocketkube.api.expressions import optional_values, timestamps, urls
from pocketkube.api.expressions.functions import EvaluationError, Function, no_overload
from pocketkube.api.expressions.optional_values import NONE, Optional
from pocketkube.api.validation import name_rules

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Check = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    name: str
    problems: Check


def _prefix(check: Check) -> Check:
    """A name to which something will be appended may end with a dash."""
    return lambda text: check(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)


def _refuses(message: str, valid: Callable[[str], object]) -> Check:
    def problems(text: str) -> list[str]:
        try:
            return [] if valid(text) else [message]
        except (EvaluationError, ValueError, binascii.Error) as problem:
            return [str(problem) or message]

    return problems


_FORMATS: dict[str, Check] = {
    "dns1123Label": name_rules.dns_label,
    "dns1123Subdomain": name_rules.dns_subdomain,
    "dns1035Label": name_rules.dns1035_label,
    "qualifiedName": name_rules.qualified_name,
    "dns1123LabelPrefix": _prefix(name_rules.dns_label),
    "dns1123SubdomainPrefix": _prefix(name_rules.dns_subdomain),
    "dns1035LabelPrefix": _prefix(name_rules.dns1035_label),
    "labelValue": name_rules.label_value,
    "uri": _refuses("invalid URI", urls.parse),
    "uuid": _refuses("does not match the UUID format", _UUID.fullmatch),
    "byte": _refuses("invalid base64", lambda text: base64.b64decode(text, validate=True) is not None),
    "date": _refuses("invalid date", lambda text: _DATE.fullmatch(text) and date.fromisoformat(text)),
    "datetime": _refuses("invalid datetime", timestamps.timestamp),
}
_BY_NAME = {name: NamedFormat(name, check) for name, check in _FORMATS.items()}


def _named(name: Any) -> Optional:
    return Optional(_BY_NAME[name]) if isinstance(name, str) and name in _BY_NAME else optional_values.NONE


def _validate(target: Any, text: Any) -> Optional:
    if not isinstance(target, NamedFormat) or not isinstance(text, str):
        raise no_overload("validate", target, text)
    found = list(target.problems(text))
    return Optional(found) if found else NONE


def _constant(name: str) -> Function:
    return lambda: _BY_NAME[name]


FUNCTIONS: dict[tuple[str, int], Function] = {
    ("format.named", 1): _named,
    **{(f"format.{name}", 0): _constant(name) for name in _FORMATS},
}
METHODS: dict[tuple[str, int], Function] = {("validate", 2): _validate}
