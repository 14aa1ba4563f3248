"""What is wrong with an object: causes, worded as kube-apiserver words them, and the rules for names.

Validators get a `Problems` and add to it; a path is written as users know it (`spec.containers[0].name`).
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Collection, Iterable
from typing import Any

from apportion.embedded.api.status import Cause

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
HIGHEST_PORT = 65535
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
IP_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"

DNS1123_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
DNS1123_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
DNS1035_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
QUALIFIED_WHOLE = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
    "'example.com/MyName')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PORT_NAME_LENGTH = 15
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


class Problems:
    """The causes found so far."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    def required(self, path: str, detail: str = "") -> None:
        self._add(path, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))

    def invalid(self, path: str, value: Any, detail: str) -> None:
        self._add(path, "FieldValueInvalid", f"Invalid value: {shown(value)}" + (f": {detail}" if detail else ""))

    def unsupported(self, path: str, value: Any, supported: Iterable[str]) -> None:
        listed = ", ".join(f'"{each}"' for each in supported)
        self._add(path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}")

    def forbidden(self, path: str, detail: str) -> None:
        self._add(path, "FieldValueForbidden", f"Forbidden: {detail}")

    def duplicate(self, path: str, value: Any, detail: str = "") -> None:
        message = f"Duplicate value: {shown(value)}" + (f": {detail}" if detail else "")
        self._add(path, "FieldValueDuplicate", message)

    def not_found(self, path: str, value: Any) -> None:
        self._add(path, "FieldValueNotFound", f"Not found: {shown(value)}")

    def too_long(self, path: str, limit: int) -> None:
        self._add(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")

    def one_of(self, path: str, value: Any, supported: Collection[str], *, required: bool = True) -> None:
        """A value from a closed set; an empty one is missing."""
        if not value:
            if required:
                self.required(path)
        elif value not in supported:
            self.unsupported(path, value, supported)

    def immutable(self, path: str, new: Any, old: Any) -> None:
        if new != old:
            self.invalid(path, new, IMMUTABLE)

    def not_negative(self, path: str, value: Any) -> None:
        if isinstance(value, int) and value < 0:
            self.invalid(path, value, NOT_NEGATIVE)

    def in_range(self, path: str, value: int, lowest: int, highest: int) -> None:
        if not lowest <= value <= highest:
            self.invalid(path, value, f"must be between {lowest} and {highest}, inclusive")

    def port(self, path: str, value: Any) -> None:
        """A port by number, or by the name that a container gives it."""
        if isinstance(value, int):
            self.in_range(path, value, 1, HIGHEST_PORT)
        else:
            self.all_of(path, value, port_name(value))

    def unique(self, path: str, field: str, items: list[dict[str, Any]]) -> None:
        """Items of a list that must differ in one field."""
        seen: set[Any] = set()
        for index, item in enumerate(items):
            value = item.get(field)
            if value and value in seen:
                self.duplicate(f"{path}[{index}].{field}", value)
            seen.add(value)

    def all_of(self, path: str, value: Any, details: Iterable[str]) -> None:
        for detail in details:
            self.invalid(path, value, detail)

    def _add(self, path: str, reason: str, message: str) -> None:
        self.causes.append(Cause(path, message, reason))


def shown(value: Any) -> str:
    """A value as error messages show it."""
    if value is None:
        return "null"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=False)


def dns_label(value: str) -> list[str]:
    """What is wrong with a DNS label; empty if nothing is."""
    found = [] if len(value) <= LABEL_LENGTH else [f"must be no more than {LABEL_LENGTH} characters"]
    return found if _LABEL.fullmatch(value) else [*found, DNS1123_LABEL]


def dns_subdomain(value: str) -> list[str]:
    found = [] if len(value) <= SUBDOMAIN_LENGTH else [f"must be no more than {SUBDOMAIN_LENGTH} characters"]
    return found if _SUBDOMAIN.fullmatch(value) else [*found, DNS1123_SUBDOMAIN]


def dns1035_label(value: str) -> list[str]:
    found = [] if len(value) <= LABEL_LENGTH else [f"must be no more than {LABEL_LENGTH} characters"]
    return found if _DNS1035.fullmatch(value) else [*found, DNS1035_LABEL]


def path_segment(value: str) -> list[str]:
    """Names of roles and the like: anything that can stand in a URL path."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in value]


def qualified_name(value: str) -> list[str]:
    """Keys of labels and annotations, names of resources: `example.com/name`."""
    prefix, slash, name = value.rpartition("/")
    if slash and "/" in prefix:
        return [QUALIFIED_WHOLE]
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {detail}" for detail in dns_subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > LABEL_LENGTH:
        found.append(f"name part must be no more than {LABEL_LENGTH} characters")
    return found if _NAME_PART.fullmatch(name) else [*found, QUALIFIED_NAME]


def label_value(value: str) -> list[str]:
    found = [] if len(value) <= LABEL_LENGTH else [f"must be no more than {LABEL_LENGTH} characters"]
    return found if _VALUE.fullmatch(value) else [*found, LABEL_VALUE]


def config_key(value: str) -> list[str]:
    """Keys of config maps and secrets, which become file names."""
    found = [] if len(value) <= SUBDOMAIN_LENGTH else [f"must be no more than {SUBDOMAIN_LENGTH} characters"]
    if not _CONFIG_KEY.fullmatch(value):
        return [*found, CONFIG_KEY]
    return [*found, f"must not be '{value}'"] if value in (".", "..") else found


def port_name(value: str) -> list[str]:
    found = []
    if len(value) > _PORT_NAME_LENGTH:
        found.append(f"must be no more than {_PORT_NAME_LENGTH} characters")
    if not _PORT_NAME.fullmatch(value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any(character.isalpha() for character in value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def ip_address(value: str) -> list[str]:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return [IP_ADDRESS]
    return []
