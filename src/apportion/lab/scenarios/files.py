"""Scenario files: YAML documents, each a scenario or a list of them.

A file that cannot be read, and a scenario in it that is wrong, become entries with a problem, so that one mistake
hides no other scenario.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from apportion.apis.errors import InputError
from apportion.lab.scenarios import parsing
from apportion.lab.scenarios.schema import Scenario

STDIN = "-"


@dataclass(frozen=True)
class ScenarioEntry:
    """One scenario of a file, or what is wrong with it. `where` says which file and which scenario of it."""

    name: str
    where: str
    scenario: Scenario | None = None
    problem: str = ""


def read(path: str) -> list[ScenarioEntry]:
    """All scenarios of a file; `-` is standard input."""
    source = "standard input" if path == STDIN else path
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text()
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except OSError as error:
        return [_unreadable(source, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return [_unreadable(source, "is not UTF-8 text: write the scenarios as YAML")]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        return [_unreadable(source, f"is not YAML: {_one_line(error)}")]
    found = [_entry(raw, source, number) for number, raw in enumerate(_scenarios(documents), start=1)]
    return found or [_unreadable(source, "has no scenario: write at least one with name, nodes and jobs")]


def _unreadable(source: str, problem: str) -> ScenarioEntry:
    return ScenarioEntry(source, source, problem=f"{source}: {problem}")


def _scenarios(documents: list[Any]) -> Iterator[Any]:
    for document in documents:
        yield from document if isinstance(document, list) else (document,)


def _entry(raw: Any, source: str, number: int) -> ScenarioEntry:
    named = raw.get("name") if isinstance(raw, dict) else None
    name = named if isinstance(named, str) and named else f"{source} scenario {number}"
    where = f"{source}: scenario {number}" + (f" ({name})" if name is named else "")
    try:
        return ScenarioEntry(name, where, parsing.parse(raw))
    except InputError as error:
        return ScenarioEntry(name, where, problem=f"{where}: {error}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _Loader(yaml.SafeLoader):
    """YAML as version 1.2 reads it: `on` is a word, and a key that is written twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        self.flatten_mapping(node)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_BOOLEAN = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != _BOOLEAN or first in "tTfF"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
