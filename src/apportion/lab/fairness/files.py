"""Files of cases as plain data: JSON if the text begins with { or [, otherwise YAML."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from apportion.apis.errors import InputError
from apportion.cluster import input_files
from apportion.lab.fairness import numbers
from apportion.lab.strict_yaml import StrictLoader

STDIN = "-"
LARGEST_BYTES = 64 * 2**20  # ten thousand trees

_FIELD = "FILE"


def read(path: str) -> Any:
    """`-` is standard input. Raises InputError for what cannot be read."""
    text = _text(path)
    try:
        return _from_json(text) if text.lstrip()[:1] in {"{", "["} else yaml.load(text, Loader=_ExactLoader)  # noqa: S506
    except RecursionError:
        raise InputError(_FIELD, path, "is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InputError(_FIELD, path, f"is not JSON: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(_FIELD, path, f"is not YAML: {' '.join(str(error).split())}") from None


def _text(path: str) -> str:
    try:
        if path == STDIN:
            return input_files.text_of(sys.stdin.buffer, path, largest=LARGEST_BYTES)
        return input_files.text(Path(path), largest=LARGEST_BYTES)
    except OSError as error:
        raise InputError(_FIELD, path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(_FIELD, path, "is not UTF-8 text: write the cases as JSON or YAML") from None
    except ValueError as error:  # a path that no file can have
        raise InputError(_FIELD, path, f"cannot be read: {error}") from None


def _from_json(text: str) -> Any:
    return json.loads(
        text,
        parse_int=numbers.integer,
        parse_float=numbers.WrittenNumber,
        parse_constant=numbers.WrittenNumber,
        object_pairs_hook=_without_repeated_keys,
    )


def _without_repeated_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(key, value, "is given twice in one object: remove one of them")
        found[key] = value
    return found


class _ExactLoader(StrictLoader):
    """Numbers as JSON writes them, read exactly; times are text."""


def _number(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | numbers.WrittenNumber:
    return numbers.integer(node.value) if _INTEGER.fullmatch(node.value) else numbers.WrittenNumber(node.value)


_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_NUMBER = re.compile(
    r"(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", re.ASCII
)
_REPLACED = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
_ExactLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in _REPLACED]
    for first, rules in StrictLoader.yaml_implicit_resolvers.items()
}
_ExactLoader.add_implicit_resolver("!number", _NUMBER, list("-+.0123456789"))
_ExactLoader.add_constructor("!number", _number)
