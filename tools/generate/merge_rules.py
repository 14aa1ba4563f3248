"""Writes `pocketkube/api/patches/merge_rules.json`: how lists and maps of the built-in kinds merge.

Strategic merge patch and server-side apply treat some lists as maps (by merge keys) or sets and some maps
as one value. That is said only in the annotations of Kubernetes' own API description, which lies inside
the Go module k8s.io/kubernetes 1.34.4 in the module cache (`make real` fills it):

    python tools/generate/merge_rules.py [--check] [--modules ~/go/pkg/mod]

Per type and field: `list` (map, set), `keys` and the `defaults` of those, `patch` (the strategies of
strategic merge patch) and `key`; `atomic` for maps that are one value, under the field name "" if that
holds for the type itself. What is not mentioned is the default: lists are atomic, maps are granular.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import table_files

TARGET = Path(__file__).resolve().parents[2] / "src/pocketkube/api/patches/merge_rules.json"
MODULE = "k8s.io/kubernetes@v1.34.4"

Rules = dict[str, dict[str, dict[str, Any]]]


def main() -> int:
    arguments = table_files.options(__doc__)
    specification = arguments.modules / MODULE / "api/openapi-spec"
    if not specification.exists():
        return table_files.without_source(specification, check=arguments.check)
    definitions = json.loads((specification / "swagger.json").read_text())["definitions"]
    rules = read(definitions, defaults(specification / "v3"))
    return table_files.settle(TARGET, rules, check=arguments.check)


def read(definitions: dict[str, Any], key_defaults: dict[str, dict[str, Any]]) -> Rules:
    found: Rules = {}
    for name, definition in definitions.items():
        fields: dict[str, dict[str, Any]] = {}
        if definition.get("x-kubernetes-map-type") == "atomic":
            fields[""] = {"atomic": True}
        for field, schema in definition.get("properties", {}).items():
            rule = read_field(schema, key_defaults)
            if rule:
                fields[field] = rule
        if fields:
            found[model(name)] = fields
    return found


def read_field(schema: dict[str, Any], key_defaults: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rule: dict[str, Any] = {}
    if schema.get("x-kubernetes-list-type") in ("map", "set"):
        rule["list"] = schema["x-kubernetes-list-type"]
    if "x-kubernetes-list-map-keys" in schema and rule.get("list") == "map":
        rule["keys"] = schema["x-kubernetes-list-map-keys"]
        item = schema.get("items", {}).get("$ref", "").rpartition("/")[2]
        chosen = {key: value for key, value in key_defaults.get(item, {}).items() if key in rule["keys"]}
        if chosen:
            rule["defaults"] = chosen
    if schema.get("x-kubernetes-map-type") == "atomic":
        rule["atomic"] = True
    if "x-kubernetes-patch-strategy" in schema:
        rule["patch"] = schema["x-kubernetes-patch-strategy"].split(",")
    if "x-kubernetes-patch-merge-key" in schema:
        rule["key"] = schema["x-kubernetes-patch-merge-key"]
    return rule


def defaults(folder: Path) -> dict[str, dict[str, Any]]:
    """Defaults of scalar fields per type; only the newer form of the description has them."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        for name, schema in json.loads(path.read_text()).get("components", {}).get("schemas", {}).items():
            for field, inner in schema.get("properties", {}).items():
                if isinstance(inner.get("default"), str) and inner["default"]:
                    found.setdefault(name, {})[field] = inner["default"]
    return found


def model(name: str) -> str:
    """`io.k8s.api.core.v1.PodSpec` as our models call it: `core_v1.PodSpec`."""
    *_, group, version, kind = name.split(".")
    return f"{group}_{version}.{kind}"


if __name__ == "__main__":
    sys.exit(main())
