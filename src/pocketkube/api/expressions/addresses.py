"""IP addresses and CIDR ranges as values of CEL: `cidr('10.0.0.0/8').containsIP(object.spec.clusterIP)`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from pocketkube.api.expressions.functions import EvaluationError, Function, no_function, no_overload

Ip = IPv4Address | IPv6Address
_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True)
class Cidr:
    """A range, with the address that it was written with."""

    ip: Ip
    length: int

    def __str__(self) -> str:
        return f"{self.ip}/{self.length}"

    @property
    def masked(self) -> Cidr:
        unused = self.ip.max_prefixlen - self.length
        return Cidr(type(self.ip)(int(self.ip) >> unused << unused), self.length)

    def contains(self, ip: Ip) -> bool:
        return ip.version == self.ip.version and Cidr(ip, self.length).masked == self.masked


_LINK_LOCAL_MULTICAST = (Cidr(IPv4Address("224.0.0.0"), 24), Cidr(IPv6Address("ff02::"), 16))


def parse_ip(text: Any) -> Ip:
    if not isinstance(text, str):
        raise no_function("ip", text)
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        why = f'ParseAddr("{text}"): unable to parse IP'
        raise EvaluationError(f'IP Address "{text}" parse error during conversion from string: {why}') from None
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    if isinstance(found, IPv6Address) and found.scope_id:
        raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    return found


def parse_cidr(text: Any) -> Cidr:
    if not isinstance(text, str):
        raise no_function("cidr", text)
    address, slash, length = text.partition("/")
    try:
        ip: Ip | None = parse_ip(address)
    except EvaluationError:
        ip = None
    if ip is not None and slash and _LENGTH.fullmatch(length) and int(length) <= ip.max_prefixlen:
        return Cidr(ip, int(length))
    why = "no '/'" if not slash else "bad address or prefix length"
    again = "network address parse error during conversion from string: "
    raise EvaluationError(f'{again}{again}netip.ParsePrefix("{text}"): {why}')


def _parses(parse: Function) -> Function:
    def parses(text: Any) -> bool:
        try:
            parse(text)
        except EvaluationError:
            return False
        return True

    return parses


def _method(name: str, kind: Any, function: Function) -> Function:
    def guarded(target: Any, *arguments: Any) -> Any:
        if not isinstance(target, kind):
            raise no_overload(name, target, *arguments)
        return function(target, *arguments)

    return guarded


def _contains_ip(cidr: Cidr, ip: Any) -> bool:
    return cidr.contains(ip if isinstance(ip, IPv4Address | IPv6Address) else parse_ip(ip))


def _contains_cidr(cidr: Cidr, other: Any) -> bool:
    inner = other if isinstance(other, Cidr) else parse_cidr(other)
    return cidr.length <= inner.length and cidr.contains(inner.masked.ip)


def _is_global_unicast(ip: Ip) -> bool:
    broadcast = ip == IPv4Address("255.255.255.255")
    return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local or broadcast)


def _is_link_local_multicast(ip: Ip) -> bool:
    return any(each.contains(ip) for each in _LINK_LOCAL_MULTICAST)


def _is_canonical(text: Any) -> bool:
    return bool(str(parse_ip(text)) == text)


def _to_string(value: Any) -> str:
    if not isinstance(value, IPv4Address | IPv6Address | Cidr):
        raise no_function("string", value)
    return str(value)


FUNCTIONS: dict[tuple[str, int], Function] = {
    ("ip", 1): parse_ip,
    ("isIP", 1): _parses(parse_ip),
    ("ip.isCanonical", 1): _is_canonical,
    ("cidr", 1): parse_cidr,
    ("isCIDR", 1): _parses(parse_cidr),
    ("string", 1): _to_string,
}
_IP = (IPv4Address, IPv6Address)
METHODS: dict[tuple[str, int], Function] = {
    ("family", 1): _method("family", _IP, lambda ip: ip.version),
    ("isUnspecified", 1): _method("isUnspecified", _IP, lambda ip: ip.is_unspecified),
    ("isLoopback", 1): _method("isLoopback", _IP, lambda ip: ip.is_loopback),
    ("isLinkLocalMulticast", 1): _method("isLinkLocalMulticast", _IP, _is_link_local_multicast),
    ("isLinkLocalUnicast", 1): _method("isLinkLocalUnicast", _IP, lambda ip: ip.is_link_local),
    ("isGlobalUnicast", 1): _method("isGlobalUnicast", _IP, _is_global_unicast),
    ("containsIP", 2): _method("containsIP", Cidr, _contains_ip),
    ("containsCIDR", 2): _method("containsCIDR", Cidr, _contains_cidr),
    ("ip", 1): _method("ip", Cidr, lambda cidr: cidr.ip),
    ("masked", 1): _method("masked", Cidr, lambda cidr: cidr.masked),
    ("prefixLength", 1): _method("prefixLength", Cidr, lambda cidr: cidr.length),
}
