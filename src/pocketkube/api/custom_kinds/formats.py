"""String formats of schemas. Formats that the server does not know are ignored, as Kubernetes ignores them."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable
from datetime import date, datetime

from pocketkube.api.regular_expressions import compiled

_UUID = r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?%s[0-9a-fA-F]{3}-?%s[0-9a-fA-F]{3}-?[0-9a-fA-F]{12}"
_HEX, _VARIANT = "[0-9a-fA-F]", "[89abAB]"
_HOST = r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_TIME_UNITS = (
    r"ns|us|µs|ms|s|m|h|d|w|min(ute)?s?|hours?|days?|weeks?|sec(ond)?s?|milli(second)?s?|"
    r"micro(second)?s?|nano(second)?s?"
)
_PATTERNS = {
    "email": r"[^@\s]+@[^@\s]+",
    "hostname": rf"{_HOST}(\.{_HOST})*\.?",
    "mac": r"([0-9a-fA-F]{2}[:-]){5,7}[0-9a-fA-F]{2}|([0-9a-fA-F]{4}\.){2,3}[0-9a-fA-F]{4}",
    "uuid": _UUID % (_HEX, _HEX),
    "uuid3": _UUID % ("3", _HEX),
    "uuid4": _UUID % ("4", _VARIANT),
    "uuid5": _UUID % ("5", _VARIANT),
    "bsonobjectid": r"[0-9a-fA-F]{24}",
    "hexcolor": r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})",
    "rgbcolor": r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)",
    "ssn": r"\d{3}[- ]?\d{2}[- ]?\d{4}",
    "uri": r"([a-zA-Z][a-zA-Z0-9+.-]*:)[^\s]*|/[^\s]*",
    "duration": rf"[-+]?(\d+(\.\d*)?\s*({_TIME_UNITS})\s*)+|0",
    "k8sshortname": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    "k8slongname": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
}
_LONGEST = {"hostname": 253, "k8sshortname": 63, "k8slongname": 253}
_RANGES = {"int32": 2**31, "int64": 2**63}


def matches(name: str, value: str) -> bool:
    """Whether a string has the format; unknown formats match everything."""
    normal = name.replace("-", "")
    if normal in _PATTERNS:
        short = len(value) <= _LONGEST.get(normal, len(value))
        return short and compiled(_PATTERNS[normal]).fullmatch(value) is not None
    read = _READERS.get(normal)
    if read is None:
        return True
    try:
        read(value)
    except (ValueError, binascii.Error):
        return False
    return True


def fits(name: str, value: float) -> bool:
    return -_RANGES[name] <= value < _RANGES[name]


def _date_time(value: str) -> None:
    moment = datetime.fromisoformat(value)
    if "T" not in value.upper() or moment.tzinfo is None:
        raise ValueError(value)


_READERS: dict[str, Callable[[str], object]] = {
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "cidr": lambda value: ipaddress.ip_network(value, strict=False) if "/" in value else int("no mask"),
    "byte": lambda value: base64.b64decode(value, validate=True),
    "date": date.fromisoformat,
    "datetime": _date_time,
}
