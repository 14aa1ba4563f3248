"""Tables: what `kubectl get` prints. The server makes the cells; the client only lays them out.

Built-in kinds have their columns in the modules beside this one, custom kinds bring printer columns, and any
other kind shows its name and when it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from pocketkube.api.registry import PrinterColumn, Resource
from pocketkube.api.tables import durations, jsonpath, network, other_kinds, pods, workloads
from pocketkube.api.tables.cells import Obj, Row

_PODS = "core_v1.Pod"
_COLUMNS: dict[str, str] = {
    _PODS: "Name,Ready,Status,Restarts,Age,IP+,Node+,Nominated Node+,Readiness Gates+",
    **workloads.COLUMNS,
    **network.COLUMNS,
    **other_kinds.COLUMNS,
}
_ROWS: dict[str, Row] = {
    _PODS: pods.row,
    **workloads.ROWS,
    **network.ROWS,
    **other_kinds.ROWS,
}
_AGE = PrinterColumn("Age", "date", ".metadata.creationTimestamp")


def render(
    resource: Resource,
    objects: Sequence[Obj],
    include: str = "Metadata",
    list_meta: Obj | None = None,
    *,
    now: datetime | None = None,
) -> Obj:
    """A Table of the objects. `include` says what each row carries besides its cells: None, Metadata or Object."""
    now = now or datetime.now(UTC)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta or {},
        "columnDefinitions": columns(resource),
        "rows": [_row(resource, obj, include or "Metadata", now) for obj in objects],
    }


def columns(resource: Resource) -> list[Obj]:
    if resource.custom:
        extra = resource.printer_columns or (_AGE,)
        return [_column("Name", "string"), *(_custom_column(each) for each in extra)]
    declared = _COLUMNS.get(_drawn_as(resource))
    if declared is None:
        return [_column("Name", "string"), _column("Created At", "date")]
    return [_declared(each) for each in declared.split(",")]


def _declared(text: str) -> Obj:
    name, _, kind = text.partition(":")
    return _column(name.removesuffix("+"), kind or "string", priority=1 if name.endswith("+") else 0)


def _column(name: str, kind: str, *, priority: int = 0) -> Obj:
    form = "name" if name == "Name" else ""
    return {"name": name, "type": kind, "format": form, "description": "", "priority": priority}


def _custom_column(column: PrinterColumn) -> Obj:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(resource: Resource, obj: Obj, include: str, now: datetime) -> Obj:
    row: Obj = {"cells": _cells(resource, obj, now)}
    if resource.model == _PODS and (conditions := pods.conditions(obj)):
        row["conditions"] = conditions
    if include == "Object":
        row["object"] = obj
    elif include == "Metadata":
        metadata = obj.get("metadata") or {}
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return row


def _cells(resource: Resource, obj: Obj, now: datetime) -> list[Any]:
    metadata = obj.get("metadata") or {}
    if resource.custom:
        extra = resource.printer_columns or (_AGE,)
        return [metadata.get("name", ""), *(_custom_cell(each, obj, now) for each in extra)]
    make = _ROWS.get(_drawn_as(resource))
    if make is None:
        return [metadata.get("name", ""), metadata.get("creationTimestamp")]
    return make(_as_core_event(obj) if resource.model == "events_v1.Event" else obj, now)


def _drawn_as(resource: Resource) -> str:
    return "core_v1.Event" if resource.model == "events_v1.Event" else resource.model or ""


def _as_core_event(event: Obj) -> Obj:
    return {
        **event,
        "involvedObject": event.get("regarding") or {},
        "message": event.get("note", ""),
        "source": event.get("deprecatedSource") or {},
        "firstTimestamp": event.get("deprecatedFirstTimestamp"),
        "lastTimestamp": event.get("deprecatedLastTimestamp"),
        "count": event.get("deprecatedCount"),
        "reportingComponent": event.get("reportingController"),
    }


def _custom_cell(column: PrinterColumn, obj: Obj, now: datetime) -> Any:
    try:
        found = jsonpath.find(column.json_path, obj)
    except jsonpath.PathError:
        return None
    if not found or found[0] is None:
        return None
    value = found[0]
    match column.type:
        case "date":
            return durations.age(value, now) if durations.parse(value) else "<invalid>"
        case "integer":
            return value if isinstance(value, int) else int(value) if isinstance(value, float) else None
        case "number" | "boolean":
            return value if isinstance(value, bool | int | float) else None
        case _:
            return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
