"""All functions and methods by name and number of arguments, from the modules that implement them."""

from __future__ import annotations

from typing import Any

from pocketkube.api.expressions import (
    addresses,
    authorization,
    formats,
    formatting,
    functions,
    optional_values,
    sets,
    timestamps,
    type_values,
    urls,
    versions,
)
from pocketkube.api.expressions.functions import Function, NoOverloadError

_Key = tuple[str, int]

_MODULES: tuple[Any, ...] = (
    *(functions, timestamps, optional_values, authorization, addresses, formats, formatting, sets, urls),
    *(versions, type_values),
)


def _merged(tables: list[dict[_Key, Function]]) -> dict[_Key, Function]:
    """Functions of several modules under one name: the first that knows the types of the arguments is called."""
    found: dict[_Key, list[Function]] = {}
    for table in tables:
        for key, function in table.items():
            found.setdefault(key, []).append(function)
    return {key: each[0] if len(each) == 1 else _first_of(each) for key, each in found.items()}


def _first_of(candidates: list[Function]) -> Function:
    def call(*values: Any) -> Any:
        for candidate in candidates[:-1]:
            try:
                return candidate(*values)
            except NoOverloadError:
                continue
        return candidates[-1](*values)

    return call


FUNCTIONS = _merged([getattr(module, "FUNCTIONS", {}) for module in _MODULES])
METHODS = _merged([getattr(module, "METHODS", {}) for module in _MODULES])
TYPE_VALUES = type_values.BY_NAME
