"""The shape of every built-in kind: fields, types, which are required, and their documentation.

Nothing here is written down by hand: the package lightkube-models holds a class per Kubernetes type.
Its modules are loaded under a private package name with a trivial `dataclass`, because only the
annotations and the docstrings are read: that takes milliseconds instead of a quarter of a second, needs
no client library, and does not disturb one that is installed. What those classes do not say (pointers,
protobuf numbers, what is left out when empty) is in `fields.json`, generated from the Go types; the value
types of maps and which strings are base64 stand in small tables below.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import pathlib
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Form = Literal[
    "string",
    "integer",
    "long",
    "number",
    "boolean",
    "quantity",
    "int-or-string",
    "time",
    "micro-time",
    "bytes",
    "any",
    "list",
    "map",
    "struct",
]


@dataclass(frozen=True, slots=True)
class Type:
    """One field type. `of` is what a list or map holds; `name` is the struct's model ("core_v1.Container")."""

    form: Form
    of: Type | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its JSON name.

    `pointer` tells an absent value from a zero one; without it, `omit` drops the zero value. `numbers` is
    the protobuf number, behind those of the messages that JSON shows inline.
    """

    name: str
    type: Type
    required: bool
    pointer: bool = False
    omit: bool = True
    omit_zero: bool = False
    numbers: tuple[int, ...] = ()
    values: tuple[str, ...] = ()  # of an enumeration


@dataclass(frozen=True, slots=True)
class Shape:
    """A struct type: its fields by JSON name."""

    name: str
    fields: Mapping[str, Field]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@functools.cache
def shape(model: str) -> Shape:
    """The shape of one type, for example "core_v1.Pod"."""
    cls = _class(model)
    module = model.partition(".")[0]
    facts = _facts(model)
    fields: dict[str, Field] = {}
    for attribute, annotation in vars(cls).get("__annotations__", {}).items():
        default = vars(cls).get(attribute, _REQUIRED)
        name = default.json_name if isinstance(default, _Renamed) else attribute
        flags, numbers, values = facts.get(name, ("o", (), ()))
        fields[name] = Field(
            name,
            _type(module, annotation, model, name, long="l" in flags),
            required=default is _REQUIRED,
            pointer="*" in flags,
            omit="o" in flags,
            omit_zero="z" in flags,
            numbers=numbers,
            values=values,
        )
    order = {name: index for index, name in enumerate(facts)}  # as the real server prints them; kind first
    return Shape(model, dict(sorted(fields.items(), key=lambda item: order.get(item[0], -1))))


def exists(model: str) -> bool:
    """Whether there is such a type."""
    module, _, name = model.partition(".")
    try:
        return isinstance(getattr(_module(module), name, None), type)
    except ImportError:
        return False


@functools.cache
def documentation(model: str) -> tuple[str, Mapping[str, str]]:
    """A type's description and those of its fields, with lines joined into paragraphs."""
    text = _class(model).__doc__ or ""
    head, _, parameters = text.partition("**parameters**")
    described: dict[str, str] = {}
    matches = list(_PARAMETER.finditer(parameters))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        end = following.start() if following else len(parameters)
        described[match["name"]] = _paragraphs(parameters[match.end() : end])
    return _paragraphs(head), described


STRING = Type("string")
INTEGER = Type("integer")
LONG = Type("long")
QUANTITY = Type("quantity")
BYTES = Type("bytes")
ANY = Type("any")

_QUANTITY_MAPS = {
    "allocatable",
    "allocatedResources",
    "capacity",
    "consumedCapacity",
    "default",
    "defaultRequest",
    "hard",
    "limits",
    "max",
    "maxLimitRequestRatio",
    "min",
    "overhead",
    "podFixed",
    "requests",
    "used",
}
_MAP_VALUES: dict[tuple[str, str], Type] = {
    ("core_v1.ConfigMap", "binaryData"): BYTES,
    ("core_v1.Secret", "data"): BYTES,
    ("policy_v1.PodDisruptionBudgetStatus", "disruptedPods"): Type("time"),
    ("authentication_v1.UserInfo", "extra"): Type("list", STRING),
    ("authorization_v1.SubjectAccessReviewSpec", "extra"): Type("list", STRING),
    ("certificates_v1.CertificateSigningRequestSpec", "extra"): Type("list", STRING),
    ("resource_v1.Device", "attributes"): Type("struct", name="resource_v1.DeviceAttribute"),
    ("resource_v1.Device", "capacity"): Type("struct", name="resource_v1.DeviceCapacity"),
    ("resource_v1.CounterSet", "counters"): Type("struct", name="resource_v1.Counter"),
    ("resource_v1.DeviceCounterConsumption", "counters"): Type("struct", name="resource_v1.Counter"),
}
_BYTES = {
    ("admissionregistration_v1.WebhookClientConfig", "caBundle"),
    ("apiextensions_v1.WebhookClientConfig", "caBundle"),
    ("certificates_v1.CertificateSigningRequestSpec", "request"),
    ("certificates_v1.CertificateSigningRequestStatus", "certificate"),
}
_SIMPLE: dict[str, Type] = {
    "str": STRING,
    "float": Type("number"),
    "bool": Type("boolean"),
    "datetime": Type("time"),
    "resource.Quantity": QUANTITY,
    "util_intstr.IntOrString": Type("int-or-string"),
    "runtime.RawExtension": ANY,
    "meta_v1.Time": Type("time"),
    "meta_v1.MicroTime": Type("micro-time"),
    "meta_v1.FieldsV1": ANY,
    "apiextensions_v1.JSON": ANY,
    "apiextensions_v1.JSONSchemaPropsOrArray": ANY,
    "apiextensions_v1.JSONSchemaPropsOrBool": ANY,
    "apiextensions_v1.JSONSchemaPropsOrStringArray": ANY,
    "apiextensions_v1.CustomResourceSubresourceStatus": ANY,
    # Schemas of custom kinds nest without end and are checked where a definition is registered.
    "apiextensions_v1.JSONSchemaProps": ANY,
}
_PARAMETER = re.compile(r"^ *\* \*\*(?P<name>[^*]+)\*\* ``[^`]*`` - ?", re.MULTILINE)
_ITEM = re.compile(r"[-*] |\d+\. ")
_WRAPPED_AT = 78


class _Renamed:
    """A field whose JSON name is no Python name (`$ref`, `x-kubernetes-list-type`)."""

    def __init__(self, json_name: str) -> None:
        self.json_name = json_name


_REQUIRED = object()


class _Fact(msgspec.Struct, array_like=True, gc=False):
    """One entry of fields.json; see tools/generate/fields.py."""

    name: str
    number: int
    flags: str
    values: tuple[str, ...] = ()


Facts = dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]]


@functools.cache
def _facts(model: str) -> Facts:
    """Flags, protobuf numbers and enumerated values of a type's fields, those of inline types included."""
    found: Facts = {}
    for fact in _all_facts().get(model, ()):
        if "i" not in fact.flags:
            found[fact.name] = (fact.flags, (fact.number,), fact.values)
            continue
        inline = fact.name.replace("v1.", "core_v1.") if "." in fact.name else f"{model.partition('.')[0]}.{fact.name}"
        for name, (flags, numbers, values) in _facts(inline).items():
            found[name] = (flags, (fact.number, *numbers) if fact.number else numbers, values)
    return found


@functools.cache
def _all_facts() -> dict[str, list[_Fact]]:
    data = pathlib.Path(__file__).with_name("fields.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, list[_Fact]])


def _type(module: str, annotation: str, owner: str, field: str, *, long: bool = False) -> Type:
    text = annotation.removeprefix("Optional[").removesuffix("]") if annotation.startswith("Optional[") else annotation
    if text.startswith("List["):
        return Type("list", _type(module, text[len("List[") : -1], owner, field, long=long))
    if text == "dict":
        value = _MAP_VALUES.get((owner, field))
        return Type("map", value or (QUANTITY if field in _QUANTITY_MAPS else STRING))
    if (owner, field) in _BYTES:
        return BYTES
    if text == "int":
        return LONG if long else INTEGER
    qualified = text if "." in text or text in _SIMPLE else f"{module}.{text}"
    return _SIMPLE.get(qualified) or Type("struct", name=qualified)


def _class(model: str) -> type[Any]:
    module, name = model.split(".")
    cls: type[Any] = getattr(_module(module), name)
    return cls


@functools.cache
def _module(name: str) -> types.ModuleType:
    return importlib.import_module(f"{_package()}.{name}")


@functools.cache
def _package() -> str:
    """A package of ours over the files of lightkube-models, with a `dataclass` decorator of our own."""
    parent = importlib.machinery.PathFinder.find_spec("lightkube", sys.path)
    inside = importlib.machinery.PathFinder.find_spec(
        "lightkube.models", parent.submodule_search_locations if parent else []
    )
    if inside is None or inside.submodule_search_locations is None:
        raise ModuleNotFoundError("The package lightkube-models is not installed.", name="lightkube.models")
    name = f"{__name__}.kubernetes"
    package = types.ModuleType(name)
    package.__path__ = list(inside.submodule_search_locations)
    schema = types.ModuleType(f"{name}._schema")
    vars(schema).update(dataclass=lambda cls: cls, field=_field, DictMixin=object)
    sys.modules[name] = package
    sys.modules[schema.__name__] = schema
    return name


def _field(*, metadata: Mapping[str, str], default: object = None) -> _Renamed:
    del default
    return _Renamed(metadata["json"])


def _paragraphs(text: str) -> str:
    """Wrapped text as it was before: a line ends a paragraph if the next word would have fitted into it."""
    paragraphs: list[str] = []
    last = ""
    for line in text.strip().splitlines():
        stripped = line.strip()
        first = stripped.partition(" ")[0]
        if not last or not first or len(last) + 1 + len(first) <= _WRAPPED_AT:
            paragraphs.append(stripped)
        else:
            paragraphs[-1] += f" {stripped}"
        last = stripped
    joined = ""
    for paragraph in filter(None, paragraphs):
        joined += ("\n" if _ITEM.match(paragraph) else "\n\n") if joined else ""
        joined += f" {paragraph}" if _ITEM.match(paragraph) else paragraph
    return joined
