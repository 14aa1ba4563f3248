"""Semantic versions as values of CEL: `semver('1.2.3').isLessThan(semver('2.0.0'))`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from pocketkube.api.expressions.functions import EvaluationError, Function, no_function, no_overload

_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_STRICT = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?")
_PARTS = 3


@functools.total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...]

    def _key(self) -> tuple[Any, ...]:
        identifiers = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in self.prerelease)
        return (self.major, self.minor, self.patch, not self.prerelease, identifiers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key() == other._key()

    def __lt__(self, other: Semver) -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def parse(text: Any, normalize: Any = False) -> Semver:  # noqa: FBT002  as the function is called
    if not isinstance(text, str) or not isinstance(normalize, bool):
        raise no_function("semver", text, normalize)
    match = _STRICT.fullmatch(_normalized(text) if normalize else text)
    prerelease = tuple((match[4] or "").split(".")) if match and match[4] else ()
    if match is None or any(each.isdigit() and each != "0" and each.startswith("0") for each in prerelease):
        parts = text.count(".") + 1
        raise EvaluationError(
            "No Major.Minor.Patch elements found"
            if parts < _PARTS
            else f"Invalid character(s) found in version {text!r}"
        )
    return Semver(int(match[1]), int(match[2]), int(match[3]), prerelease)


def _normalized(text: str) -> str:
    """Without a `v`, with all three numbers, and without zeros before them."""
    numbers, sign, rest = re.fullmatch(r"([^+-]*)([+-]?)(.*)", text.removeprefix("v"), re.DOTALL).groups()  # type: ignore[union-attr]
    parts = [each.lstrip("0") or "0" if each.isdigit() else each for each in numbers.split(".")]
    parts += ["0"] * (_PARTS - len(parts)) if not sign else []
    return ".".join(parts) + sign + rest


def _is_semver(text: Any, normalize: Any = False) -> bool:  # noqa: FBT002  as the function is called
    try:
        parse(text, normalize)
    except EvaluationError:
        return False
    return True


def _method(name: str, function: Function) -> Function:
    def guarded(*values: Any) -> Any:
        if not all(isinstance(each, Semver) for each in values):
            raise no_overload(name, *values)
        return function(*values)

    return guarded


FUNCTIONS: dict[tuple[str, int], Function] = {
    ("semver", 1): parse,
    ("semver", 2): parse,
    ("isSemver", 1): _is_semver,
    ("isSemver", 2): _is_semver,
}
METHODS: dict[tuple[str, int], Function] = {
    ("major", 1): _method("major", lambda version: version.major),
    ("minor", 1): _method("minor", lambda version: version.minor),
    ("patch", 1): _method("patch", lambda version: version.patch),
    ("isLessThan", 2): _method("isLessThan", lambda left, right: left < right),
    ("isGreaterThan", 2): _method("isGreaterThan", lambda left, right: left > right),
    ("compareTo", 2): _method("compareTo", lambda left, right: (left > right) - (left < right)),
}
