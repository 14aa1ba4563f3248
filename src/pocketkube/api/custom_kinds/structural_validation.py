"""Validation of custom objects against their structural schema, with the refusals of kube-apiserver.

A value that an update leaves as it was is not checked again: objects written under an older, laxer schema
can still be changed elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pocketkube.api.custom_kinds import formats, validation_rules
from pocketkube.api.custom_kinds.places import ROOT, Place
from pocketkube.api.registry import Resource
from pocketkube.api.regular_expressions import compiled
from pocketkube.api.status import Cause, bounded

Obj = dict[str, Any]
Schema = Mapping[str, Any]
ABSENT = object()
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def validate(resource: Resource, new: Obj, old: Obj | None, *, subresource: str = "") -> list[Cause]:
    """Everything that is wrong with a custom object. The status endpoint judges the status alone."""
    schema = resource.schema
    if not schema:
        return []
    before: Any = old if old is not None else ABSENT
    if subresource == "status" and old is not None:
        inner = (schema.get("properties") or {}).get("status", {})
        return bounded(
            cause if cause is _NOT_CHECKED else _within("status", cause)
            for cause in check(inner, new.get("status", {}), old.get("status", ABSENT), ROOT, schema)
        )
    return bounded(check(schema, new, before, ROOT))


def check(schema: Schema, value: Any, old: Any, place: Place, whole: Schema | None = None) -> Iterator[Cause]:
    """All causes under one place; `old` is what stood there before, if anything did.

    Rules come last, and not at all where a value may not even have the type that they expect. `whole`: the schema of
    the whole kind, if this is a part of it.
    """
    later: list[_Ruled] = []
    blocked = False
    for found in _check(schema, value, old, place):
        if isinstance(found, _Ruled):
            later.append(found)
            continue
        blocked = blocked or found.reason in _BLOCKING
        yield found
    if blocked:
        if validation_rules.exist(whole or schema):
            yield _NOT_CHECKED
        return
    budget = validation_rules.Budget()
    for ruled in later:
        yield from validation_rules.violations(ruled.schema, ruled.value, ruled.old, ruled.place, budget)


@dataclass(frozen=True, slots=True)
class _Ruled:
    """A place whose rules are yet to be evaluated."""

    schema: Schema
    value: Any
    old: Any
    place: Place


_BLOCKING = frozenset(f"FieldValue{name}" for name in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"))
_NOT_CHECKED = Cause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)


def _within(field: str, cause: Cause) -> Cause:
    return Cause(f"{field}.{cause.field}" if cause.field else field, cause.message, cause.reason)


def _check(schema: Schema, value: Any, old: Any, place: Place) -> Iterator[Cause | _Ruled]:
    if place and old is not ABSENT and old == value:
        return
    if value is None:
        if not schema.get("nullable") and _types(schema):
            yield _wrong_type(place, "null", _types(schema))
        return
    wrong = _wrong(schema, value, place)
    if wrong is not None:
        yield wrong
        yield from _enumerated(schema, value, place)
        return
    yield from _value_rules(schema, value, place)
    yield from _junctors(schema, value, place)
    if isinstance(value, dict):
        yield from _object_rules(schema, value, old, place)
    elif isinstance(value, list):
        yield from _list_rules(schema, value, old, place)
    if validation_rules.KEY in schema:
        yield _Ruled(schema, value, None if old is ABSENT else old, place)


def _types(schema: Schema) -> list[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _wrong(schema: Schema, value: Any, place: Place) -> Cause | None:
    types = _types(schema)
    if not types or any(_TYPES[each](value) for each in types if each in _TYPES):
        return None
    return _wrong_type(place, _type_of(value), types)


def _wrong_type(place: Place, found: str, types: list[str]) -> Cause:
    wanted = types[0] if len(types) == 1 else ",".join(types)
    problem = f'Invalid value: "{found}": {place} in body must be of type {wanted}: "{found}"'
    return Cause(str(place), problem, "FieldValueTypeInvalid")


def _value_rules(schema: Schema, value: Any, place: Place) -> Iterator[Cause]:
    yield from _enumerated(schema, value, place)
    if isinstance(value, str):
        yield from _string_rules(schema, value, place)
    elif _number(value):
        yield from _number_rules(schema, value, place)


def _enumerated(schema: Schema, value: Any, place: Place) -> Iterator[Cause]:
    if "enum" in schema and not any(_equal(value, each) for each in schema["enum"]):
        allowed = ", ".join(f'"{each if isinstance(each, str) else _json(each)}"' for each in schema["enum"])
        problem = f"Unsupported value: {_json(value)}: supported values: {allowed}"
        yield Cause(str(place), problem, "FieldValueNotSupported")


def _string_rules(schema: Schema, value: str, place: Place) -> Iterator[Cause]:
    pattern, form = schema.get("pattern"), schema.get("format")
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield Cause(str(place), f"Too long: may not be more than {schema['maxLength']} bytes", "FieldValueTooLong")
    elif len(value) < schema.get("minLength", 0):
        yield _invalid(place, value, f"should be at least {schema['minLength']} chars long")
    elif pattern and not compiled(pattern).search(value):
        yield _invalid(place, value, f"should match '{pattern}'")
    if form and not formats.matches(form, value):
        yield _invalid(place, value, f"must be of type {form}: {_json(value)}", "FieldValueTypeInvalid")


def _number_rules(schema: Schema, value: float, place: Place) -> Iterator[Cause]:
    if "minimum" in schema:
        low, strict = schema["minimum"], schema.get("exclusiveMinimum")
        if value < low or (strict and value == low):
            yield _invalid(place, value, f"should be greater than {'' if strict else 'or equal to '}{_plain(low)}")
    if "maximum" in schema:
        high, strict = schema["maximum"], schema.get("exclusiveMaximum")
        if value > high or (strict and value == high):
            yield _invalid(place, value, f"should be less than {'' if strict else 'or equal to '}{_plain(high)}")
    step = schema.get("multipleOf")
    if step and not _multiple(value, step):
        yield _invalid(place, value, f"should be a multiple of {_plain(step)}")
    form = schema.get("format")
    if form in ("int32", "int64") and not formats.fits(form, value):
        yield _invalid(place, value, f"must be of type {form}: {_json(value)}", "FieldValueTypeInvalid")


def _multiple(value: float, step: float) -> bool:
    try:
        return float(value / step).is_integer()
    except OverflowError:  # an integer of hundreds of digits
        return value % step == 0


def _object_rules(schema: Schema, value: Obj, old: Any, place: Place) -> Iterator[Cause | _Ruled]:
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield _too_many(place, len(value), schema["maxProperties"])
    if len(value) < schema.get("minProperties", 0):
        yield _invalid(place, value, f"should have at least {schema['minProperties']} properties")
    for name in schema.get("required") or []:
        if name not in value:
            yield Cause(str(place.field(name)), "Required value", "FieldValueRequired")
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name, inner in value.items():
        rule = properties.get(name, extra if isinstance(extra, Mapping) else None)
        if rule is not None and not (not place and name == "metadata"):
            before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
            yield from _check(rule, inner, before, place.field(name))
    if schema.get("x-kubernetes-embedded-resource"):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield Cause(str(place.field(name)), "Required value: must not be empty", "FieldValueRequired")


def _list_rules(schema: Schema, value: list[Any], old: Any, place: Place) -> Iterator[Cause | _Ruled]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield _too_many(place, len(value), schema["maxItems"])
    if len(value) < schema.get("minItems", 0):
        yield _invalid(place, value, f"should have at least {schema['minItems']} items")
    items = schema.get("items")
    correlated = _correlated(schema, old)
    for index, item in enumerate(value):
        if isinstance(items, Mapping):
            yield from _check(items, item, correlated(item), place.item(index))
    yield from _duplicates(schema, value, place)


def _correlated(schema: Schema, old: Any) -> Callable[[Any], Any]:
    """Finds the old item of a list with keys; items of other lists have no identity."""
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if not keys or not isinstance(old, list):
        return lambda _item: ABSENT
    known = {_key(item, keys): item for item in old if isinstance(item, dict)}
    return lambda item: known.get(_key(item, keys), ABSENT) if isinstance(item, dict) else ABSENT


def _duplicates(schema: Schema, value: list[Any], place: Place) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if kind not in ("set", "map"):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        if kind == "map" and not isinstance(item, dict):
            continue
        shown = {name: item[name] for name in keys if name in item} if kind == "map" else item
        identity = _json(shown)
        if identity in seen:
            yield Cause(str(place.item(index)), f"Duplicate value: {identity}", "FieldValueDuplicate")
        seen.add(identity)


def _junctors(schema: Schema, value: Any, place: Place) -> Iterator[Cause | _Ruled]:
    """allOf, anyOf, oneOf and not: value rules without structure of their own."""
    for inner in schema.get("allOf") or []:
        yield from _check(inner, value, ABSENT, place)
    any_of = schema.get("anyOf") or []
    if any_of and not any(_passes(inner, value) for inner in any_of):
        yield _named(place, "must validate at least one schema (anyOf)")
        yield from _check(any_of[0], value, ABSENT, place)
    one_of = schema.get("oneOf") or []
    passed = sum(_passes(inner, value) for inner in one_of)
    if one_of and passed != 1:
        found = "Found none valid" if passed == 0 else f"Found {passed} valid alternatives"
        yield _named(place, f"must validate one and only one schema (oneOf). {found}")
        if passed == 0:
            yield from _check(one_of[0], value, ABSENT, place)
    if schema.get("not") is not None and _passes(schema["not"], value):
        yield _named(place, "must not validate the schema (not)")


def _passes(schema: Schema, value: Any) -> bool:
    return next(_check(schema, value, ABSENT, ROOT), None) is None


def _invalid(place: Place, value: Any, why: str, reason: str = "FieldValueInvalid") -> Cause:
    return Cause(str(place), f"Invalid value: {_json(value)}: {place} in body {why}", reason)


def _named(place: Place, why: str) -> Cause:
    return Cause("<nil>", f'Invalid value: "": "{place}" {why}')


def _too_many(place: Place, found: int, limit: int) -> Cause:
    return Cause(str(place), f"Too many: {found}: must have at most {limit} items", "FieldValueTooMany")


def _key(item: Obj, keys: list[str]) -> str:
    return _json({name: item.get(name) for name in keys})


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _type_of(value: Any) -> str:
    if isinstance(value, float) and not value.is_integer():
        return "number"
    return next((name for name, matches in _TYPES.items() if matches(value)), "null")


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
