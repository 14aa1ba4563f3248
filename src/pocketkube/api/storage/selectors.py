"""Label and field selectors: parsed once per request, matched against what the store keeps beside each object.

Grammar and refusals follow Kubernetes: `a=b`, `a==b`, `a!=b`, `a in (x, y)`, `a notin (x)`, `a`, `!a`,
`a>1`, `a<1` for labels; `path=value`, `path!=value` for the fields that a kind offers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pocketkube.api.status import bad_request
from pocketkube.api.storage.store import Bucket, Stored

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One comma-separated part of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        has = self.key in labels
        match self.operator:
            case "in":
                return has and labels[self.key] in self.values
            case "notin":
                return not has or labels[self.key] not in self.values
            case "exists":
                return has
            case "!":
                return not has
            case _:
                return has and _compare(labels[self.key], self.operator, next(iter(self.values)))


@dataclass(frozen=True, slots=True)
class FieldTerm:
    path: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Both selectors of a request; the empty one matches everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()
    _labels_match: Callable[[Labels], bool] = field(init=False, repr=False, compare=False)
    _fields_match: Callable[[Labels], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_labels_match", _predicate(self.labels))
        object.__setattr__(self, "_fields_match", _fields_predicate(self.fields))

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, stored: Stored) -> bool:
        return self._fields_match(stored.fields) and self._labels_match(stored.labels)

    @property
    def single_name(self) -> str | None:
        """The only name that can match, if the field selector says so."""
        return next((term.value for term in self.fields if term.equal and term.path == "metadata.name"), None)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """A label selector in its query form; raises ApiStatus 400."""
    return _LabelParser(text).requirements()


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """A field selector in its query form; which paths exist is not checked here."""
    terms = []
    for part in _split_unescaped(text):
        if not part:
            continue
        match = re.fullmatch(r"((?:[^=!\\]|\\.)*?)(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        terms.append(FieldTerm(match[1].strip(), _unescape(match[3]), match[2] != "!="))
    return tuple(terms)


def from_label_selector(selector: Mapping[str, Any] | None) -> Callable[[Labels], bool]:
    """A `metav1.LabelSelector` as a predicate: absent matches nothing, empty matches everything."""
    if selector is None:
        return lambda _labels: False
    requirements = [
        Requirement(key, "in", frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    names = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    for expression in selector.get("matchExpressions") or []:
        operator = names.get(str(expression.get("operator")), "in")
        requirements.append(
            Requirement(str(expression.get("key")), operator, frozenset(expression.get("values") or []))
        )
    return _predicate(requirements)


def _predicate(requirements: Iterable[Requirement]) -> Callable[[Labels], bool]:
    """All requirements at once. Those that absent labels fulfil are looked up by key, so their number costs nothing."""
    positive: list[Requirement] = []
    absent: set[str] = set()
    refused: dict[str, set[str]] = {}
    for each in dict.fromkeys(requirements):
        if each.operator == "!":
            absent.add(each.key)
        elif each.operator == "notin":
            refused.setdefault(each.key, set()).update(each.values)
        else:
            positive.append(each)

    def matches(labels: Labels) -> bool:
        return (
            all(requirement.matches(labels) for requirement in positive)
            and not any(key in absent for key in labels)
            and not (refused and any(value in refused.get(key, ()) for key, value in labels.items()))
        )

    return matches


def _fields_predicate(terms: Iterable[FieldTerm]) -> Callable[[Labels], bool]:
    equal: dict[str, set[str]] = {}
    different: dict[str, set[str]] = {}
    for term in terms:
        (equal if term.equal else different).setdefault(term.path, set()).add(term.value)

    def matches(fields: Mapping[str, str]) -> bool:
        return all({fields.get(path, "")} == values for path, values in equal.items()) and all(
            fields.get(path, "") not in values for path, values in different.items()
        )

    return matches


# Fields that can be selected on, beside metadata.name and metadata.namespace. A path that is absent in an
# object counts as the empty string, or as the given text.
_COMMON = ("metadata.name", "metadata.namespace")
_FIELDS: dict[Bucket, dict[str, str]] = {
    Bucket("", "pods"): {
        "spec.nodeName": "",
        "spec.restartPolicy": "",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": "false",
        "status.phase": "",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    },
    Bucket("", "nodes"): {"spec.unschedulable": "false"},
    Bucket("", "namespaces"): {"status.phase": ""},
    Bucket("", "secrets"): {"type": ""},
    Bucket("", "services"): {"spec.clusterIP": "", "spec.type": ""},
    Bucket("", "replicationcontrollers"): {"status.replicas": "0"},
    Bucket("", "events"): {
        **{
            f"involvedObject.{name}": ""
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        },
        "reason": "",
        "reportingComponent": "",
        "source": "",
        "type": "",
    },
    Bucket("apps", "replicasets"): {"status.replicas": "0"},
    Bucket("batch", "jobs"): {"status.successful": "0"},
    Bucket("certificates.k8s.io", "certificatesigningrequests"): {"spec.signerName": ""},
}
WITH_OWN_FIELDS = frozenset(_FIELDS)
_ALIASES = {
    Bucket("batch", "jobs"): {"status.successful": "status.succeeded"},
    Bucket("", "events"): {"source": "source.component"},
}


def fields_of(bucket: Bucket, obj: dict[str, Any]) -> dict[str, str]:
    """The selectable fields of an object as the store keeps them."""
    metadata = obj["metadata"]
    fields = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
    aliases = _ALIASES.get(bucket, {})
    for path, absent in _FIELDS.get(bucket, {}).items():
        fields[path] = _text(obj, aliases.get(path, path)) or absent
    return fields


def supported_fields(bucket: Bucket) -> Iterable[str]:
    return (*_COMMON, *_FIELDS.get(bucket, {}))


def text_at(obj: Mapping[str, Any], path: str) -> str:
    """The value at a dotted path as field selectors compare it."""
    return _text(obj, path)


def _text(obj: Mapping[str, Any], path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None or isinstance(value, (Mapping, list)):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare(text: str, operator: str, bound: str) -> bool:
    try:
        return int(text) > int(bound) if operator == "gt" else int(text) < int(bound)
    except ValueError:
        return False


def _split_unescaped(text: str) -> list[str]:
    return re.findall(r"(?:[^,\\]|\\.)+", text, re.DOTALL)


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", text)


_PIECE = re.compile(r"\s*(==|!=|=|!|,|\(|\)|>|<|[^\s=!,()<>]+)")
_NAME = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)"
_KEY = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?" + _NAME)
_VALUE = re.compile(_NAME + "?")
_LONGEST = 63
_SYMBOLS = ("=", "==", "!=", ",", "(", ")", ">", "<")
_START = "!, identifier, or 'end of string'"
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._pieces = _PIECE.findall(text)
        self._at = 0

    def requirements(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        if self._peek() in _SYMBOLS:
            raise bad_request(f"found '{self._peek()}', expected: {_START}")
        while self._peek():
            found.append(self._requirement())
            if not self._peek():
                break
            separator = self._next()
            if separator != ",":
                raise bad_request(f"found '{separator}', expected: ',' or 'end of string'")
            if self._peek() in ("", *_SYMBOLS):
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")
        return tuple(found)

    def _requirement(self) -> Requirement:
        first = self._next()
        if first == "!":
            return Requirement(self._key(self._next()), "!")
        key = self._key(first)
        operator = self._peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self._next()
        match operator:
            case "=" | "==":
                return Requirement(key, "in", frozenset({self._value(key)}))
            case "!=":
                return Requirement(key, "notin", frozenset({self._value(key)}))
            case ">" | "<":
                return Requirement(key, "gt" if operator == ">" else "lt", frozenset({self._bound(key)}))
            case "in" | "notin":
                return Requirement(key, operator, self._values(key))
        raise _refuse(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self, piece: str) -> str:
        if not piece or piece in (*_SYMBOLS, "!"):
            raise _refuse(f"found '{piece}', expected: {_START}")
        if not _KEY.fullmatch(piece) or len(piece.rpartition("/")[2]) > _LONGEST:
            raise _refuse(f'<nil>: Invalid value: "{piece}": {_KEY_RULE}')
        return piece

    def _value(self, key: str) -> str:
        if self._peek() in ("", ","):
            return ""
        if self._peek() in _SYMBOLS:
            raise _refuse(f"found '{self._peek()}', expected: identifier")
        return _checked(self._next(), key)

    def _bound(self, key: str) -> str:
        bound = self._value(key)
        if not re.fullmatch(r"[-+]?[0-9]+", bound):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _refuse(f'values[0]: Invalid value: "{bound}": {why}')
        return bound

    def _values(self, key: str) -> frozenset[str]:
        opening = self._next()
        if opening != "(":
            raise _refuse(f"found '{opening}' expected: '('")
        values: set[str] = set()
        wanting = True  # a value is due: an empty place between commas is the empty value
        while True:
            piece = self._next()
            if not piece:
                raise _refuse("found '', expected: ',' or ')'")
            if piece in (",", ")"):
                if wanting:
                    values.add("")
                if piece == ")":
                    return frozenset(values)
                wanting = True
            elif piece in _SYMBOLS or not wanting:
                raise _refuse(f"found '{piece}', expected: ',', or ')'")
            else:
                values.add(_checked(piece, key))
                wanting = False

    def _peek(self) -> str:
        return self._pieces[self._at] if self._at < len(self._pieces) else ""

    def _next(self) -> str:
        piece = self._peek()
        self._at += 1
        return piece


def _checked(piece: str, key: str) -> str:
    if not _VALUE.fullmatch(piece) or len(piece) > _LONGEST:
        raise _refuse(f'values[0][{key}]: Invalid value: "{piece}": {_VALUE_RULE}')
    return piece


def _refuse(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")
