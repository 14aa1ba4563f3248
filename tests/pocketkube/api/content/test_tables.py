"""What `kubectl get` prints: columns and cells as a real server makes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pocketkube.api.registry import PrinterColumn, Registry, Resource
from pocketkube.api.tables import durations, jsonpath, printing
from tests.pocketkube.api.content import case_requests

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("tables.json").read_text())
NOW = datetime(2025, 1, 2, tzinfo=UTC)


def test_tables_are_those_of_a_real_server() -> None:
    registry = Registry.builtin()
    found: dict[str, Any] = {}
    for name, recorded in RECORDED.items():
        resource = registry.by_api_version(recorded["object"]["apiVersion"], recorded["object"]["kind"])
        assert resource is not None
        table = printing.render(resource, [recorded["object"]], "Object")
        columns = [{key: column[key] for key in ("name", "type", "priority")} for column in table["columnDefinitions"]]
        row = table["rows"][0]
        found[name] = {
            "columns": columns,
            "cells": case_requests.masked_cells(columns, row["cells"]),
            "conditions": [each["reason"] for each in row.get("conditions") or ()],
            "object": row["object"],
        }
    assert {name: (each, RECORDED[name]) for name, each in found.items() if each != RECORDED[name]} == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-0.5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (127, "2m7s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (10860, "3h1m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (691200, "8d"),
        (63071999, "729d"),
        (63072000, "2y"),
        (63158400, "2y1d"),
        (252288000, "8y"),
    ],
)
def test_ages_are_written_as_people_know_them(seconds: float, text: str) -> None:
    assert durations.human(timedelta(seconds=seconds)) == text


def custom(*columns: PrinterColumn) -> Resource:
    return Resource("x.io", "v1", "Claim", "claims", "claim", namespaced=True, schema={}, printer_columns=columns)


CLAIM = {
    "metadata": {"name": "c", "creationTimestamp": "2025-01-01T00:00:00Z", "labels": {"a.b/c": "d"}},
    "spec": {"profile": "1g.5gb", "size": 2, "deep": {"k": [1, 2]}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
}


def test_custom_kinds_show_their_printer_columns() -> None:
    resource = custom(
        PrinterColumn("Profile", "string", ".spec.profile"),
        PrinterColumn("Size", "integer", ".spec.size"),
        PrinterColumn("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Label", "string", r".metadata.labels.a\.b/c"),
        PrinterColumn("Deep", "string", ".spec.deep", priority=1),
        PrinterColumn("Missing", "string", ".spec.none"),
        PrinterColumn("Wrong", "integer", ".spec.profile"),
        PrinterColumn("Age", "date", ".metadata.creationTimestamp"),
    )
    table = printing.render(resource, [CLAIM], "None", {"resourceVersion": "7"}, now=NOW)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        *("Name", "Profile", "Size", "Ready", "Label", "Deep", "Missing", "Wrong", "Age")
    ]
    assert table["columnDefinitions"][5]["priority"] == 1
    cells = ["c", "1g.5gb", 2, "True", "d", '{"k":[1,2]}', None, None, "24h"]
    assert table["rows"] == [{"cells": cells}]
    assert table["metadata"] == {"resourceVersion": "7"}


def test_custom_kinds_without_columns_show_their_age() -> None:
    table = printing.render(custom(), [CLAIM], "Metadata", {}, now=NOW)
    assert table["rows"][0]["cells"] == ["c", "24h"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.deep.k[0]", [1]),
        (".spec.deep.k[-1]", [2]),
        (".spec.deep.k[*]", [1, 2]),
        (".spec.deep.k[0:1]", [1]),
        ("{.spec.size}", [2]),
        ("$.spec['size']", [2]),
        ('.status.conditions[?(@.status!="True")].type', ["Old"]),
        (".spec.none.deeper", []),
        (".spec.profile.deeper", []),
    ],
)
def test_paths_of_columns(path: str, found: list[Any]) -> None:
    assert jsonpath.find(path, CLAIM) == found


@pytest.mark.parametrize("path", ["spec.size", ".spec..size", ".spec[", ".a[?(@.b)]", ".a[?(@.b==c)]"])
def test_paths_that_no_column_can_have_are_refused(path: str) -> None:
    with pytest.raises(jsonpath.PathError):
        jsonpath.parse(path)
