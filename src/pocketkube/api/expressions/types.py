"""The types of CEL as the checker knows them, and when one may stand where another is expected.

Type parameters (`A` in `list(A)`) get fresh names for every call; `Substitutions` remembers what they turned out to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    of: tuple[Type, ...] = ()
    is_parameter: bool = False

    @property
    def shown(self) -> str:
        """As error messages of the checker name it."""
        name = _SHORT.get(self.name, self.name)
        return f"{name}({', '.join(each.shown for each in self.of)})" if self.of else name

    def __str__(self) -> str:
        """The full name, as messages about the result of an expression have it."""
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name

    @property
    def is_any(self) -> bool:
        """Whether everything goes; errors do, so that one mistake is reported once."""
        return self.name in ("dyn", "!error!")

    @property
    def is_nullable(self) -> bool:
        return "." in self.name or self.name in ("null_type", "optional_type")


DYN, ERROR = Type("dyn"), Type("!error!")
BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null_type")
TIMESTAMP, DURATION = Type("google.protobuf.Timestamp"), Type("google.protobuf.Duration")
_SHORT = {"null_type": "null", TIMESTAMP.name: "timestamp", DURATION.name: "duration"}
_LONG = {"null": "null_type", "timestamp": TIMESTAMP.name, "duration": DURATION.name, "optional": "optional_type"}


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


def parse(text: str) -> Type:
    """A type in the notation of the signatures: `map(string, list(A))`."""
    tokens = re.findall(r"[\w.]+|[(),]", text)
    found, rest = _parsed(tokens)
    assert not rest, text
    return found


def _parsed(tokens: Sequence[str]) -> tuple[Type, Sequence[str]]:
    name, rest = tokens[0], tokens[1:]
    if len(name) == 1 and name.isupper():
        return Type(name, is_parameter=True), rest
    parts: list[Type] = []
    if rest and rest[0] == "(":
        while rest[0] != ")":
            part, rest = _parsed(rest[1:])
            parts.append(part)
        rest = rest[1:]
    return Type(_LONG.get(name, name), tuple(parts)), rest


@dataclass(slots=True)
class Substitutions:
    """What type parameters stand for."""

    known: dict[str, Type] = field(default_factory=dict)
    fresh: int = 0

    def parameter(self) -> Type:
        self.fresh += 1
        return Type(f"_var{self.fresh - 1}", is_parameter=True)

    def instantiated(self, signature: Iterable[Type]) -> list[Type]:
        """A signature with parameters of its own."""
        names: dict[str, Type] = {}
        return [self._renamed(each, names) for each in signature]

    def _renamed(self, given: Type, names: dict[str, Type]) -> Type:
        if given.is_parameter:
            return names.setdefault(given.name, self.parameter())
        return Type(given.name, tuple(self._renamed(each, names) for each in given.of)) if given.of else given

    def resolved(self, given: Type, *, free: Type | None = None) -> Type:
        """A type with everything filled in that is known; parameters that stay free become `free`."""
        if given.is_parameter:
            known = self.known.get(given.name)
            return self.resolved(known, free=free) if known is not None else (free or given)
        return Type(given.name, tuple(self.resolved(each, free=free) for each in given.of)) if given.of else given

    def assignable(self, given: Sequence[Type], expected: Sequence[Type]) -> bool:
        """Whether all of some types fit; what that says about parameters is remembered if they do."""
        before = dict(self.known)
        if len(given) == len(expected) and all(map(self._fits, given, expected)):
            return True
        self.known = before
        return False

    def _fits(self, given: Type, expected: Type) -> bool:  # noqa: PLR0911  one return per kind of type
        if expected.is_parameter:
            bound = expected.name in self.known
            if self._bind(expected, given):
                return True
            if bound:
                return False
        if given.is_parameter:
            return self._bind(given, expected)
        if given.is_any or expected.is_any:
            return True
        if NULL in (given, expected):
            return given.is_nullable and expected.is_nullable
        if given.name != expected.name:
            return False
        return given.name == "type" or (
            len(given.of) == len(expected.of) and all(map(self._fits, given.of, expected.of))
        )

    def _bind(self, parameter: Type, given: Type) -> bool:
        if given == parameter:
            return True
        known = self.known.get(parameter.name)
        if known is None:
            if self._occurs(parameter, given):
                return False
            self.known[parameter.name] = given
            return True
        if known == given:
            return True
        if not self._fits(given, known):
            return False
        general = most_general(given, known)
        if not self._occurs(parameter, general):
            self.known[parameter.name] = general
        return True

    def _occurs(self, parameter: Type, within: Type) -> bool:
        if within.is_parameter:
            known = self.known.get(within.name)
            return within == parameter or (known is not None and self._occurs(parameter, known))
        return any(self._occurs(parameter, each) for each in within.of)


def most_general(left: Type, right: Type) -> Type:
    return left if _at_least_as_general(left, right) else right


def _at_least_as_general(left: Type, right: Type) -> bool:
    if left.is_any or left.is_parameter:
        return True
    if right.is_any or right.is_parameter:
        return False
    if left == NULL:
        return False
    if right == NULL:
        return True
    if left.name != right.name or len(left.of) != len(right.of):
        return False
    return all(map(_at_least_as_general, left.of, right.of))
