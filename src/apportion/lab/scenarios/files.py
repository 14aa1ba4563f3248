"""Scenario files: YAML documents, each a scenario or a list of them.

A file that cannot be read, and a scenario in it that is wrong, become entries with a problem, so that one mistake
hides no other scenario.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from apportion.apis.errors import InputError
from apportion.cluster import input_files
from apportion.lab.scenarios import parsing
from apportion.lab.scenarios.printable import printable
from apportion.lab.scenarios.schema import Scenario
from apportion.lab.strict_yaml import StrictLoader

STDIN = "-"

_DOCUMENT_START = re.compile(r"^(?=---(?:\s|$))", re.MULTILINE)


@dataclass(frozen=True)
class ScenarioEntry:
    """One scenario of a file, or what is wrong with it. `where` says which file and which scenario of it."""

    name: str
    where: str
    scenario: Scenario | None = None
    problem: str = ""


def read(path: str) -> list[ScenarioEntry]:
    """All scenarios of a file; `-` is standard input."""
    source = "standard input" if path == STDIN else printable(path)
    try:
        text = sys.stdin.buffer.read().decode() if path == STDIN else input_files.text(Path(path))
    except OSError as error:
        return [_unreadable(source, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return [_unreadable(source, "is not UTF-8 text: write the scenarios as YAML")]
    except ValueError as error:
        return [_unreadable(source, f"cannot be read: {error}")]
    found = list(_scenarios(text))
    if not found:
        return [_unreadable(source, "has no scenario: write at least one with name, nodes and jobs")]
    if len(found) == 1 and isinstance(found[0], Exception):
        return [_unreadable(source, _not_yaml(found[0]))]
    return [_entry(raw, source, number) for number, raw in enumerate(found, start=1)]


def _unreadable(source: str, problem: str) -> ScenarioEntry:
    return ScenarioEntry(source, source, problem=f"{source}: {problem}")


def _scenarios(text: str) -> Iterator[Any]:
    """Of every document; what cannot be read of one is an error in its place, and the others go on."""
    for document, line in _documents(text):
        if isinstance(document, yaml.SequenceNode):
            for item in document.value:
                yield _constructed(item, line)
        elif (found := _constructed(document, line)) is not None:
            yield found


def _documents(text: str) -> Iterator[tuple[yaml.Node | Exception, int]]:
    """Each with the number of lines before it. One that is no YAML would hide those after it: then each is read alone.

    No `---` at the start of a line can be part of a document, not even of a text in it.
    """
    try:
        yield from [(node, 0) for node in yaml.compose_all(text, Loader=StrictLoader)]
    except (yaml.YAMLError, RecursionError):
        line = 0
        for part in _DOCUMENT_START.split(text):
            try:
                yield from [(node, line) for node in yaml.compose_all(part, Loader=StrictLoader)]
            except (yaml.YAMLError, RecursionError) as error:
                yield _moved(error, line), line
            line += part.count("\n")


def _constructed(node: yaml.Node | Exception, line: int) -> Any:
    """The plain data of a scenario, or why there is none."""
    if isinstance(node, Exception):
        return node
    loader = StrictLoader("")
    try:
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        return _moved(error, line)
    finally:
        loader.dispose()


def _moved(error: Exception, line: int) -> Exception:
    """The error with its lines counted from the start of the file."""
    marks = {id(mark): mark for name in ("context_mark", "problem_mark") if (mark := getattr(error, name, None))}
    for mark in marks.values():
        mark.line += line
    return error


def _entry(raw: Any, source: str, number: int) -> ScenarioEntry:
    named = raw.get("name") if isinstance(raw, dict) else None
    name = printable(named) if isinstance(named, str) and named else f"{source} scenario {number}"
    where = f"{source}: scenario {number}" + (f" ({name})" if isinstance(named, str) and named else "")
    if isinstance(raw, Exception):
        return ScenarioEntry(name, where, problem=f"{where}: {_not_yaml(raw)}")
    try:
        return ScenarioEntry(name, where, parsing.parse(raw))
    except InputError as error:
        return ScenarioEntry(name, where, problem=f"{where}: {printable(str(error))}")
    except RecursionError:
        return ScenarioEntry(name, where, problem=f"{where}: contains itself, or is nested too deeply")


def _not_yaml(error: Exception) -> str:
    return f"is not YAML: {printable(' '.join(str(error).split()))}"
