"""Fields, keys and items of values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pocketkube.api.expressions import authorization, optional_values
from pocketkube.api.expressions.functions import EvaluationError, is_int, to_string, type_name
from pocketkube.api.expressions.lazy_fields import LazyFields
from pocketkube.api.expressions.optional_values import Optional


def field(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if name in value:
            return value[name]
        raise EvaluationError(f"no such key: {name}")
    if isinstance(value, Optional):
        return optional_values.selected(value, name)
    if isinstance(value, LazyFields) and name in value.names:
        return value.read(name)
    if isinstance(value, authorization.VALUES):
        return authorization.field(value, name)
    raise EvaluationError(f"no such key: {name}")


def has(value: Any, name: str) -> bool:
    if isinstance(value, dict):
        return value.get(name) is not None
    if isinstance(value, LazyFields):
        return name in value.names
    if isinstance(value, Optional):
        return optional_values.selected(value, name).has
    return False


def indexed(value: Any, key: Any) -> Any:
    if isinstance(value, Optional):
        return optional_values.indexed(value, key)
    if isinstance(value, list):
        if not is_int(key):
            raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")
        if not 0 <= key < len(value):
            raise EvaluationError(f"index out of bounds: {key}")
        return value[key]
    if isinstance(value, dict):
        if not isinstance(key, str | int | float) or key not in value:
            raise EvaluationError(f"no such key: {key}")
        return value[key]
    raise EvaluationError(f"no such key: {to_string(key) if isinstance(key, str | int | float) else key}")


def singles(value: Any) -> Iterable[tuple[Any]]:
    """What a comprehension with one name goes through: the items of a list, the keys of a map."""
    if not isinstance(value, list | dict):
        raise _not_iterable(value)
    return [(each,) for each in value]


def pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """The same with two names: positions and items, keys and values."""
    if isinstance(value, list):
        return list(enumerate(value))
    if isinstance(value, dict):
        return list(value.items())
    raise _not_iterable(value)


def _not_iterable(value: Any) -> EvaluationError:
    name = type_name(value).rpartition(".")[2].removesuffix("_type").capitalize()
    return EvaluationError(f"got 'types.{name}', expected iterable type")


_ESCAPES = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}


def unescaped(name: str) -> str:
    """The field that an escaped name means: `foo__dash__bar` is foo-bar."""
    if "__" not in name:
        return name
    for escape, character in _ESCAPES.items():
        name = name.replace(escape, character)
    if name.startswith("__") and name.endswith("__") and name[2:-2].isalpha():
        return name[2:-2]  # a reserved word
    return name
