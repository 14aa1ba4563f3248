"""Writes `pocketkube/api/content/internal_pod_form.json`: the shape of a pod inside kube-apiserver.

A refused change of a pod is shown as a difference of its internal form, whose fields have the names and the order of
Go structs. For every type that a pod's spec reaches: each field's Go name and type (`+` before an embedded one). Named
types that are no structs are replaced by what they stand for. Read from the module k8s.io/kubernetes, version 1.34.4,
in the module cache (`make real` fills it):

    python tools/generate/internal_pod_form.py [--check] [--modules ~/go/pkg/mod]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import table_files

TARGET = Path(__file__).resolve().parents[2] / "src/pocketkube/api/content/internal_pod_form.json"
VERSION = "v1.34.4"
ROOTS = ("PodSpec",)

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) ([\w\[\].*]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:([A-Z]\w*(?:, \w+)*)\s+)?([\w.*\[\]]+)\s*(?:`[^`]*`)?\s*(?://.*)?$", re.MULTILINE)
_WORD = re.compile(r"[A-Z]\w*")


def main() -> int:
    arguments = table_files.options(__doc__)
    source = arguments.modules / f"k8s.io/kubernetes@{VERSION}/pkg/apis/core/types.go"
    if not source.exists():
        return table_files.without_source(source, check=arguments.check)
    types = read(source.read_text())
    return table_files.settle(TARGET, types, check=arguments.check)


def read(source: str) -> dict[str, list[list[str]]]:
    structs = {name: _fields(body) for name, body in _STRUCT.findall(source)}
    named = dict(_NAMED.findall(source))
    found: dict[str, list[list[str]]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = [[field, _resolved(kind, named)] for field, kind in structs[name]]
        waiting += [word for _, kind in found[name] for word in _WORD.findall(kind) if word in structs]
    return found


def _fields(body: str) -> list[tuple[str, str]]:
    return [(name or f"+{kind}", kind) for name, kind in _FIELD.findall(body) if name or kind[0].isupper()]


def _resolved(kind: str, named: dict[str, str]) -> str:
    """The type with names that are no structs spelled out; what another package defines stays as it is."""
    if "." in kind:
        return kind
    before = ""
    while before != kind:
        before = kind
        kind = _WORD.sub(lambda match: named.get(match[0], match[0]), kind)
    return kind


if __name__ == "__main__":
    sys.exit(main())
