"""Reading a built-in object as its typed form: what the real server's decoder accepts, drops and rewrites.

The real server decodes JSON into typed structs and stores what these hold: a wrong type is refused,
unknown fields are reported and dropped, nulls and empty optional lists disappear, quantities and times
are rewritten. Here msgspec structs, made from the models on first use, do that in C for all good input;
whatever they refuse goes through a plain walk that finds out what to say. Both must agree.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from datetime import UTC, datetime
from types import GenericAlias
from typing import Annotated, Any

import msgspec

from apportion.apis.quantity import QuantityError
from pocketkube.api import limits, status
from pocketkube.api.content import canonical_quantities, field_models
from pocketkube.api.content.field_models import Field, Shape, Type
from pocketkube.api.registry import Resource


def canonical(resource: Resource, obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object as the server keeps it, and the unknown fields that were dropped (`spec.foo`).

    A wrong type raises a 400, worded as kube-apiserver words it. Custom kinds have no model and come
    back as they are: their schema is applied elsewhere.
    """
    if resource.model is None:
        return obj, []
    unknown: list[str] = []
    try:
        typed = msgspec.convert(obj, _struct(resource.model), dec_hook=_decode)
    except (msgspec.ValidationError, MismatchError):
        typed = _repaired(resource, resource.model, obj, unknown)
    kept: dict[str, Any] = msgspec.to_builtins(typed, enc_hook=_encode)
    return kept, unknown


def empty(resource: Resource, field: str) -> dict[str, Any]:
    """What the server writes for a part that nobody has filled in: `status` of a new ReplicaSet has 0 replicas."""
    assert resource.model is not None
    part = field_models.shape(resource.model).fields[field].type
    written: dict[str, Any] = msgspec.to_builtins(_struct(part.name)(), enc_hook=_encode)
    return written


def canonical_metadata(metadata: Any) -> tuple[dict[str, Any], list[str]]:
    """The same for the metadata of a custom object."""
    unknown: list[str] = []
    if metadata is None:
        return {}, unknown
    try:
        typed = msgspec.convert(metadata, _struct(_METADATA), dec_hook=_decode)
    except (msgspec.ValidationError, MismatchError):
        try:
            repaired = _walk(Type("struct", name=_METADATA), metadata, "metadata", "ObjectMeta.metadata", unknown)
            typed = msgspec.convert(repaired, _struct(_METADATA), dec_hook=_decode)
        except (msgspec.ValidationError, MismatchError) as problem:
            raise status.bad_request(f"unable to decode the metadata of the object: {problem}") from None
    kept: dict[str, Any] = msgspec.to_builtins(typed, enc_hook=_encode)
    return kept, unknown


def strict_error(resource: Resource, unknown: list[str]) -> status.ApiStatus:
    """The refusal of unknown fields under strict field validation."""
    listed = ", ".join(f'unknown field "{path}"' for path in unknown)
    return _cannot_be_handled(resource, resource.kind, f"strict decoding error: {listed}")


class MismatchError(ValueError):
    """A value of the wrong type; the text is what the real decoder says."""


_METADATA = "meta_v1.ObjectMeta"


class _Quantity:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _Time(_Quantity):
    __slots__ = ()


class _MicroTime(_Quantity):
    __slots__ = ()


class _Base64(_Quantity):
    __slots__ = ()


_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
_RFC3339_MICRO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}(Z|[+-][0-9]{2}:[0-9]{2})")
_GO_TIME = "2006-01-02T15:04:05Z07:00"
_GO_MICRO_TIME = "2006-01-02T15:04:05.000000Z07:00"
_INT32_LIMIT = 2**31
_INT64_LIMIT = 2**63


# The quick way


@functools.cache
def _struct(model: str) -> type[msgspec.Struct]:
    """A msgspec struct for one type.

    A field that the real server leaves out when empty has the empty value as its default, so that it is
    left out here too; other plain values and nested structs that are no pointers are always written.
    """
    fields: list[tuple[str, Any, Any]] = []
    rename: dict[str, str] = {}
    for index, field in enumerate(field_models.shape(model).fields.values()):
        attribute = f"f{index}"
        rename[attribute] = field.name
        fields.append((attribute, *_hint_and_default(field)))
    return msgspec.defstruct(
        model.replace(".", "_"),
        fields,
        rename=rename,
        omit_defaults=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def _hint_and_default(field: Field) -> tuple[Any, Any]:
    hint = _hint(field.type)
    if field.type.form in ("list", "map"):
        if not field.omit:
            return hint | msgspec.UnsetType, msgspec.field(default=msgspec.UNSET)
        return hint, msgspec.field(default_factory=list if field.type.form == "list" else dict)
    if field.type.form == "struct" and _always_written(field):
        return hint, msgspec.field(default_factory=_struct(field.type.name))
    if not field.pointer and field.type.form in _ZEROS:
        zero = _ZEROS[field.type.form]
        return hint, msgspec.field(default=zero) if field.omit else msgspec.field(default_factory=type(zero))
    return hint | None if field.type.form != "any" else Any, msgspec.field(default=None)


def _always_written(field: Field) -> bool:
    return not field.pointer and not field.omit_zero


_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "long": 0, "boolean": False, "number": 0.0}
_HINTS: dict[str, Any] = {
    "string": str,
    "integer": Annotated[int, msgspec.Meta(ge=-_INT32_LIMIT, lt=_INT32_LIMIT)],
    "long": Annotated[int, msgspec.Meta(ge=-_INT64_LIMIT, le=_INT64_LIMIT - 1)],
    "number": float,
    "boolean": bool,
    "quantity": _Quantity,
    "int-or-string": int | str,
    "time": _Time,
    "micro-time": _MicroTime,
    "bytes": _Base64,
    "any": Any,
}


def _hint(kind: Type) -> Any:
    if kind.form == "struct":
        return _struct(kind.name)
    if kind.of is None:
        return _HINTS[kind.form]
    inner = _hint(kind.of)
    return GenericAlias(list, (inner,)) if kind.form == "list" else GenericAlias(dict, (str, inner))


def _decode(kind: type[Any], value: Any) -> Any:
    return kind(_READERS[kind](value))


def _encode(value: Any) -> str:
    text: str = value.text
    return text


# The careful way


def _repaired(resource: Resource, model: str, obj: dict[str, Any], unknown: list[str]) -> msgspec.Struct:
    """The struct after a walk that drops nulls and unknown fields, or the refusal that says what is wrong."""
    try:
        repaired = _walk_struct(field_models.shape(model), obj, "", "", unknown)
        return msgspec.convert(repaired, _struct(model), dec_hook=_decode)
    except (msgspec.ValidationError, MismatchError) as problem:
        raise _cannot_be_handled(resource, obj.get("kind") or resource.kind, str(problem)) from None


def _cannot_be_handled(resource: Resource, kind: str, why: str) -> status.ApiStatus:
    return status.bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def _walk_struct(shape: Shape, value: Any, path: str, go_path: str, unknown: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, inner in value.items():
        field = shape.fields.get(name)
        here = f"{path}.{name}" if path else name
        if field is None:
            if len(unknown) < limits.MAX_STRICT_ERRORS:
                unknown.append(here)
            continue
        if inner is None:
            continue
        place = f"{shape.short_name}.{go_path}.{name}" if go_path else f"{shape.short_name}.{name}"
        kept[name] = _walk(field.type, inner, here, place, unknown)
    return kept


def _walk(kind: Type, value: Any, path: str, place: str, unknown: list[str]) -> Any:
    """`path` is ours (`spec.containers[0]`), `place` is how Go names a field (`PodSpec.spec.containers`)."""
    match kind.form:
        case "any":
            return value
        case "struct":
            shape = field_models.shape(kind.name)
            if not isinstance(value, dict):
                raise _mismatch(value, place, _go_type(kind))
            return _walk_struct(shape, value, path, place.partition(".")[2], unknown)
        case "list":
            if not isinstance(value, list) or kind.of is None:
                raise _mismatch(value, place, _go_type(kind))
            return [_walk_item(kind.of, each, f"{path}[{index}]", place, unknown) for index, each in enumerate(value)]
        case "map":
            if not isinstance(value, dict) or kind.of is None:
                raise _mismatch(value, place, _go_type(kind))
            return {key: _walk_item(kind.of, each, f"{path}.{key}", place, unknown) for key, each in value.items()}
        case "quantity" | "time" | "micro-time" | "bytes":
            return _READERS[_HINTS[kind.form]](value)
        case _:
            return _scalar(kind, value, place)


def _walk_item(kind: Type, value: Any, path: str, place: str, unknown: list[str]) -> Any:
    if value is None:  # Go leaves the zero value
        return {"list": [], "map": {}, "struct": {}, "string": "", "quantity": "0", "bytes": ""}.get(kind.form)
    return _walk(kind, value, path, place, unknown)


def _scalar(kind: Type, value: Any, place: str) -> Any:
    go_type = _go_type(kind)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind.form in ("integer", "long") and isinstance(value, int | float) and not isinstance(value, bool):
        limit = _INT32_LIMIT if go_type == "int32" else _INT64_LIMIT
        if isinstance(value, float) or not -limit <= value < limit:
            raise MismatchError(f"json: cannot unmarshal number {value} into Go struct field {place} of type {go_type}")
    accepted = {
        "string": isinstance(value, str),
        "integer": whole,
        "long": whole,
        "boolean": isinstance(value, bool),
        "number": whole or isinstance(value, float),
        "int-or-string": whole or isinstance(value, str),
    }
    if not accepted[kind.form]:
        raise _mismatch(value, place, go_type)
    return value


def _mismatch(value: Any, place: str, go_type: str) -> MismatchError:
    names = (
        (type(None), "null"),
        (bool, "bool"),
        (str, "string"),
        ((int, float), "number"),
        (list, "array"),
        (dict, "object"),
    )
    given = next(name for kinds, name in names if isinstance(value, kinds))
    return MismatchError(f"json: cannot unmarshal {given} into Go struct field {place} of type {go_type}")


_GO_SCALARS = {"integer": "int32", "long": "int64", "int-or-string": "int32", "boolean": "bool", "number": "float64"}


def _go_type(kind: Type) -> str:
    match kind.form:
        case "struct":
            module, _, name = kind.name.partition(".")
            return f"{module.rpartition('_')[2]}.{name}"
        case "list" | "map":
            return ("[]" if kind.form == "list" else "map[string]") + _go_type(kind.of or field_models.ANY)
        case _:
            return _GO_SCALARS.get(kind.form, "string")


# Values that are rewritten


def _read_quantity(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MismatchError(canonical_quantities.RULE)
    try:
        return canonical_quantities.canonical(value)
    except QuantityError:
        raise MismatchError(canonical_quantities.RULE) from None


def _read_time(value: Any) -> str:
    return _parse_time(value, _GO_TIME, _RFC3339).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_micro_time(value: Any) -> str:
    return _parse_time(value, _GO_MICRO_TIME, _RFC3339_MICRO).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse_time(value: Any, layout: str, form: re.Pattern[str]) -> datetime:
    if not isinstance(value, str):
        raise _mismatch(value, "", "string")
    try:
        moment = datetime.fromisoformat(value) if form.fullmatch(value) else None
    except ValueError:
        moment = None
    if moment is None:
        raise MismatchError(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return moment


def _read_base64(value: Any) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, "", "[]uint8")
    try:
        return base64.b64encode(base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)).decode()
    except (binascii.Error, ValueError):
        bad = re.search(r"[^A-Za-z0-9+/\r\n]", value)
        raise MismatchError(f"illegal base64 data at input byte {bad.start() if bad else len(value)}") from None


_READERS: dict[Any, Any] = {
    _Quantity: _read_quantity,
    _Time: _read_time,
    _MicroTime: _read_micro_time,
    _Base64: _read_base64,
}
