"""The functions of CEL in Kubernetes 1.34 with the types of their arguments and results.

`name(argument, ...) result` is a function, `[target].name(argument, ...) result` a method. What is not listed here is
an undeclared reference when an expression is compiled; what is listed is implemented by `functions` and its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pocketkube.api.expressions import types
from pocketkube.api.expressions.types import Type

_NUMBERS = ("int", "uint", "double")
_ORDERED = ("bool", "string", "bytes", "timestamp", "duration")

_LANGUAGE = """
_?_:_(bool, A, A) A
_==_(A, A) bool
_!=_(A, A) bool
@in(A, list(A)) bool
@in(A, map(A, B)) bool
_[_](list(A), int) A
_[_](map(A, B), A) B
_[_](optional(list(A)), int) optional(A)
_[_](optional(map(A, B)), A) optional(B)
_[?_](list(A), int) optional(A)
_[?_](optional(list(A)), int) optional(A)
_[?_](map(A, B), A) optional(B)
_[?_](optional(map(A, B)), A) optional(B)
_+_(int, int) int
_+_(uint, uint) uint
_+_(double, double) double
_+_(string, string) string
_+_(bytes, bytes) bytes
_+_(list(A), list(A)) list(A)
_+_(duration, duration) duration
_+_(duration, timestamp) timestamp
_+_(timestamp, duration) timestamp
_-_(int, int) int
_-_(uint, uint) uint
_-_(double, double) double
_-_(duration, duration) duration
_-_(timestamp, duration) timestamp
_-_(timestamp, timestamp) duration
_*_(int, int) int
_*_(uint, uint) uint
_*_(double, double) double
_/_(int, int) int
_/_(uint, uint) uint
_/_(double, double) double
_%_(int, int) int
_%_(uint, uint) uint
!_(bool) bool
-_(int) int
-_(double) double
"""

_STANDARD = """
size(string) int
size(bytes) int
size(list(A)) int
size(map(A, B)) int
[string].size() int
[bytes].size() int
[list(A)].size() int
[map(A, B)].size() int
bool(bool) bool
bool(string) bool
bytes(bytes) bytes
bytes(string) bytes
double(double) double
double(int) double
double(uint) double
double(string) double
int(int) int
int(uint) int
int(double) int
int(string) int
int(timestamp) int
int(duration) int
uint(uint) uint
uint(int) uint
uint(double) uint
uint(string) uint
string(string) string
string(bool) string
string(bytes) string
string(int) string
string(uint) string
string(double) string
string(timestamp) string
string(duration) string
timestamp(timestamp) timestamp
timestamp(int) timestamp
timestamp(string) timestamp
duration(duration) duration
duration(int) duration
duration(string) duration
dyn(A) dyn
type(A) type(A)
[string].contains(string) bool
[string].startsWith(string) bool
[string].endsWith(string) bool
[string].matches(string) bool
matches(string, string) bool
[duration].getHours() int
[duration].getMinutes() int
[duration].getSeconds() int
[duration].getMilliseconds() int
"""

_EXTENSIONS = """
[string].charAt(int) string
[string].indexOf(string) int
[string].indexOf(string, int) int
[string].lastIndexOf(string) int
[string].lastIndexOf(string, int) int
[string].lowerAscii() string
[string].upperAscii() string
[string].replace(string, string) string
[string].replace(string, string, int) string
[string].split(string) list(string)
[string].split(string, int) list(string)
[string].substring(int) string
[string].substring(int, int) string
[string].trim() string
[string].format(list(dyn)) string
[list(string)].join() string
[list(string)].join(string) string
strings.quote(string) string
sets.contains(list(A), list(A)) bool
sets.equivalent(list(A), list(A)) bool
sets.intersects(list(A), list(A)) bool
optional.of(A) optional(A)
optional.ofNonZeroValue(A) optional(A)
optional.none() optional(A)
[optional(A)].hasValue() bool
[optional(A)].value() A
[optional(A)].or(optional(A)) optional(A)
[optional(A)].orValue(A) A
"""

_KUBERNETES = """
[string].find(string) string
[string].findAll(string) list(string)
[string].findAll(string, int) list(string)
[list(A)].indexOf(A) int
[list(A)].lastIndexOf(A) int
url(string) kubernetes.URL
isURL(string) bool
[kubernetes.URL].getScheme() string
[kubernetes.URL].getHost() string
[kubernetes.URL].getHostname() string
[kubernetes.URL].getPort() string
[kubernetes.URL].getEscapedPath() string
[kubernetes.URL].getQuery() map(string, list(string))
quantity(string) kubernetes.Quantity
isQuantity(string) bool
sign(kubernetes.Quantity) int
[kubernetes.Quantity].isInteger() bool
[kubernetes.Quantity].asInteger() int
[kubernetes.Quantity].asApproximateFloat() double
[kubernetes.Quantity].isLessThan(kubernetes.Quantity) bool
[kubernetes.Quantity].isGreaterThan(kubernetes.Quantity) bool
[kubernetes.Quantity].compareTo(kubernetes.Quantity) int
[kubernetes.Quantity].add(kubernetes.Quantity) kubernetes.Quantity
[kubernetes.Quantity].add(int) kubernetes.Quantity
[kubernetes.Quantity].sub(kubernetes.Quantity) kubernetes.Quantity
[kubernetes.Quantity].sub(int) kubernetes.Quantity
semver(string) kubernetes.Semver
semver(string, bool) kubernetes.Semver
isSemver(string) bool
isSemver(string, bool) bool
[kubernetes.Semver].major() int
[kubernetes.Semver].minor() int
[kubernetes.Semver].patch() int
[kubernetes.Semver].isLessThan(kubernetes.Semver) bool
[kubernetes.Semver].isGreaterThan(kubernetes.Semver) bool
[kubernetes.Semver].compareTo(kubernetes.Semver) int
ip(string) net.IP
isIP(string) bool
ip.isCanonical(string) bool
string(net.IP) string
[net.IP].family() int
[net.IP].isUnspecified() bool
[net.IP].isLoopback() bool
[net.IP].isLinkLocalMulticast() bool
[net.IP].isLinkLocalUnicast() bool
[net.IP].isGlobalUnicast() bool
cidr(string) net.CIDR
isCIDR(string) bool
string(net.CIDR) string
[net.CIDR].containsIP(net.IP) bool
[net.CIDR].containsIP(string) bool
[net.CIDR].containsCIDR(net.CIDR) bool
[net.CIDR].containsCIDR(string) bool
[net.CIDR].ip() net.IP
[net.CIDR].masked() net.CIDR
[net.CIDR].prefixLength() int
format.named(string) optional(kubernetes.NamedFormat)
[kubernetes.NamedFormat].validate(string) optional(list(string))
[kubernetes.authorization.Authorizer].path(string) kubernetes.authorization.PathCheck
[kubernetes.authorization.Authorizer].group(string) kubernetes.authorization.GroupCheck
[kubernetes.authorization.Authorizer].serviceAccount(string, string) kubernetes.authorization.Authorizer
[kubernetes.authorization.GroupCheck].resource(string) kubernetes.authorization.ResourceCheck
[kubernetes.authorization.ResourceCheck].subresource(string) kubernetes.authorization.ResourceCheck
[kubernetes.authorization.ResourceCheck].namespace(string) kubernetes.authorization.ResourceCheck
[kubernetes.authorization.ResourceCheck].name(string) kubernetes.authorization.ResourceCheck
[kubernetes.authorization.ResourceCheck].fieldSelector(string) kubernetes.authorization.ResourceCheck
[kubernetes.authorization.ResourceCheck].labelSelector(string) kubernetes.authorization.ResourceCheck
[kubernetes.authorization.PathCheck].check(string) kubernetes.authorization.Decision
[kubernetes.authorization.ResourceCheck].check(string) kubernetes.authorization.Decision
[kubernetes.authorization.Decision].allowed() bool
[kubernetes.authorization.Decision].reason() string
[kubernetes.authorization.Decision].errored() bool
[kubernetes.authorization.Decision].error() string
"""

NAMED_FORMATS = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix"),
    *("dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
)
_PARTS_OF_TIME = (
    *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes"),
    *("getSeconds", "getMilliseconds"),
)


def _generated() -> Iterator[str]:
    for sign in ("<", "<=", ">", ">="):
        for left in _NUMBERS:
            for right in _NUMBERS:
                yield f"_{sign}_({left}, {right}) bool"
        for each in _ORDERED:
            yield f"_{sign}_({each}, {each}) bool"
    for part in _PARTS_OF_TIME:
        yield f"[timestamp].{part}() int"
        yield f"[timestamp].{part}(string) int"
    for item in (*_NUMBERS, *_ORDERED):
        yield f"[list({item})].isSorted() bool"
        yield f"[list({item})].min() {item}"
        yield f"[list({item})].max() {item}"
    for item in (*_NUMBERS, "duration"):
        yield f"[list({item})].sum() {item}"
    for name in NAMED_FORMATS:
        yield f"format.{name}() kubernetes.NamedFormat"


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a function. The target of a method is its first argument."""

    result: Type
    arguments: tuple[Type, ...]
    is_method: bool


_SIGNATURE = re.compile(r"(?:\[(?P<target>[^\]]+)\]\.)?(?P<name>\S+?)\((?P<arguments>.*)\) (?P<result>\S.*)")


def _read() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, list[Overload]] = {}
    lines = (line for text in (_LANGUAGE, _STANDARD, _EXTENSIONS, _KUBERNETES) for line in text.strip().splitlines())
    for line in (*lines, *_generated()):
        match = _SIGNATURE.fullmatch(line)
        assert match is not None, line
        given = types.parse(f"x({match['arguments']})").of if match["arguments"] else ()
        target = (types.parse(match["target"]),) if match["target"] else ()
        overload = Overload(types.parse(match["result"]), (*target, *given), bool(target))
        found.setdefault(match["name"], []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


OVERLOADS = _read()
