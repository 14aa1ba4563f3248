"""Writes `pocketkube/api/content/fields.json`: facts about fields that only Kubernetes' Go types know.

For every type of the kinds that the embedded server serves: each field's JSON name, its protobuf number
and flags: `*` pointer, `o` left out when empty, `z` left out when zero, `l` 64-bit integer, `i` inline
(the name is then the type whose fields stand here); then the values of an enumeration, if it is one.
Read from the Go modules k8s.io/api, apimachinery and apiextensions-apiserver, version 0.34.4, and (the enumerations)
from the OpenAPI document in k8s.io/kubernetes, all in the module cache (`make real` fills it):

    python tools/generate/fields.py [--check] [--modules ~/go/pkg/mod]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import table_files

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from pocketkube.api.registry import Registry

TARGET = Path(__file__).resolve().parents[2] / "src/pocketkube/api/content/fields.json"
VERSION = "v0.34.4"
EXTRA_PACKAGES = ("autoscaling_v1",)

Fields = list[list[Any]]
Enums = dict[str, dict[str, list[str]]]

_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\t(?:(\w+) +)?([\w.*\[\]]+) +`([^`]*)`", re.MULTILINE)
_SCHEMA = re.compile(r"^func schema_(\w+)\(", re.MULTILINE)
_PROPERTY = re.compile(r'^\t{5}"([^"]+)": \{$', re.MULTILINE)
_ENUM = re.compile(r"^\t+Enum: +\[\]interface\{\}\{(.*)\},$", re.MULTILINE)
_TAG = re.compile(r'(\w+):"([^"]*)"')
_NUMBER = re.compile(r"\w+,(\d+),")


def main() -> int:
    arguments = table_files.options(__doc__)
    modules = {str(each.model).partition(".")[0] for each in Registry.builtin()} | set(EXTRA_PACKAGES)
    root = arguments.modules / "k8s.io"
    if not (root / f"api@{VERSION}").exists():
        return table_files.without_source(root / f"api@{VERSION}", check=arguments.check)
    folders = {module: _folder(root, module) for module in sorted(modules | {"meta_v1"})}
    document = root / f"kubernetes@v1{VERSION[2:]}/pkg/generated/openapi/zz_generated.openapi.go"
    enums = read_enums(document.read_text())
    types: dict[str, Fields] = {}
    for module, folder in folders.items():
        types |= read_package(module, _source(folder), enums)
    return table_files.settle(TARGET, types, check=arguments.check)


def read_package(module: str, source: str, enums: Enums) -> dict[str, Fields]:
    group, version = module.rsplit("_", 1)
    prefix = "k8sio_api" if group not in ("meta", "apiextensions") else "pkg_apis"
    return {
        f"{module}.{name}": read_struct(body, enums.get(f"{prefix}_{group}_{version}_{name}", {}))
        for name, body in _STRUCT.findall(source)
    }


def read_enums(source: str) -> Enums:
    """The values of each type's fields that have a closed set of them."""
    found: Enums = {}
    for name, body in _sections(_SCHEMA, source):
        for field, text in _sections(_PROPERTY, body):
            if match := _ENUM.search(text):
                found.setdefault(name, {})[field] = json.loads(f"[{match[1]}]")
    return found


def _sections(heading: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """What stands under each heading."""
    pieces = heading.split(text)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def read_struct(body: str, enums: dict[str, list[str]]) -> Fields:
    found: Fields = []
    for name, go_type, tags in _FIELD.findall(body):
        tag = dict(_TAG.findall(tags))
        json_name, *options = tag.get("json", "").split(",")
        number = _NUMBER.match(tag.get("protobuf", ""))
        if "inline" in options or (not json_name and not name):
            if not go_type.endswith("TypeMeta"):
                found.append([go_type.lstrip("*"), int(number[1]) if number else 0, "i"])
            continue
        if json_name in ("", "-"):
            continue
        flags = "*" if go_type.startswith("*") else ""
        flags += "o" if "omitempty" in options else ""
        flags += "z" if "omitzero" in options else ""
        flags += "l" if go_type.endswith("int64") else ""
        values = enums.get(json_name)
        found.append([json_name, int(number[1]) if number else 0, flags, *([values] if values else [])])
    return found


def _source(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("types*.go")) if "swagger" not in path.name)


def _folder(root: Path, module: str) -> Path:
    group, version = module.rsplit("_", 1)
    if group == "meta":
        return root / f"apimachinery@{VERSION}/pkg/apis/meta" / version
    if group == "apiextensions":
        return root / f"apiextensions-apiserver@{VERSION}/pkg/apis/apiextensions" / version
    return root / f"api@{VERSION}" / group / version


if __name__ == "__main__":
    sys.exit(main())
