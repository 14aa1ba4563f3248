"""Which names are allowed where: labels, subdomains, keys, ports.

A rule answers what is wrong with a name, in kube-apiserver's words; nothing means that it is good. The same
few names are checked over and over, so answers are remembered.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Iterator

NameRule = Callable[[str], tuple[str, ...]]

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
_REMEMBERED_LENGTH = 2 * SUBDOMAIN_LENGTH

_DNS1123_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_DNS1123_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_DNS1035_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_QUALIFIED_WHOLE = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
    "'example.com/MyName')"
)
_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_IP_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PORT_NAME_LENGTH = 15
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def _rule(check: Callable[[str], Iterator[str]]) -> NameRule:
    @functools.lru_cache(maxsize=8192)
    def remembered(value: str) -> tuple[str, ...]:
        return tuple(check(value))

    @functools.wraps(check)
    def rule(value: str) -> tuple[str, ...]:
        # What is too long for a name is not remembered: thousands of such values would fill the memory.
        return remembered(value) if len(value) <= _REMEMBERED_LENGTH else tuple(check(value))

    return rule


@_rule
def dns_label(value: str) -> Iterator[str]:
    yield from _at_most(LABEL_LENGTH, value)
    if not _LABEL.fullmatch(value):
        yield _DNS1123_LABEL


@_rule
def dns_subdomain(value: str) -> Iterator[str]:
    yield from _at_most(SUBDOMAIN_LENGTH, value)
    if not _SUBDOMAIN.fullmatch(value):
        yield _DNS1123_SUBDOMAIN


@_rule
def dns1035_label(value: str) -> Iterator[str]:
    yield from _at_most(LABEL_LENGTH, value)
    if not _DNS1035.fullmatch(value):
        yield _DNS1035_LABEL


@_rule
def path_segment(value: str) -> Iterator[str]:
    """Names of roles and the like: anything that can stand in a URL path."""
    if value in (".", ".."):
        yield f"may not be '{value}'"
    for character in "/%":
        if character in value:
            yield f"may not contain '{character}'"


@_rule
def qualified_name(value: str) -> Iterator[str]:
    """Keys of labels and annotations, names of resources: `example.com/name`."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        yield _QUALIFIED_WHOLE
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash:
        yield from (f"prefix part {detail}" for detail in dns_subdomain(prefix))
    if not name:
        yield "name part must be non-empty"
    else:
        yield from (f"name part {detail}" for detail in _at_most(LABEL_LENGTH, name))
    if not _NAME_PART.fullmatch(name):
        yield _QUALIFIED_NAME


@_rule
def label_value(value: str) -> Iterator[str]:
    yield from _at_most(LABEL_LENGTH, value)
    if not _VALUE.fullmatch(value):
        yield _LABEL_VALUE


@_rule
def config_key(value: str) -> Iterator[str]:
    """Keys of config maps and secrets, which become file names."""
    yield from _at_most(SUBDOMAIN_LENGTH, value)
    if not _CONFIG_KEY.fullmatch(value):
        yield _CONFIG_KEY_RULE
    elif value in (".", ".."):
        yield f"must not be '{value}'"


@_rule
def port_name(value: str) -> Iterator[str]:
    yield from _at_most(_PORT_NAME_LENGTH, value)
    if not _PORT_NAME.fullmatch(value):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not any(character.isalpha() for character in value):
        yield "must contain at least one letter (a-z)"
    if "--" in value:
        yield "must not contain consecutive hyphens"
    if value.startswith("-") or value.endswith("-"):
        yield "must not begin or end with a hyphen"


@_rule
def ip_address(value: str) -> Iterator[str]:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        yield _IP_ADDRESS


def _at_most(length: int, value: str) -> Iterator[str]:
    if len(value) > length:
        yield f"must be no more than {length} characters"
