"""Asks an API server about the cases of `refused.py` and `accepted.py` and keeps what it says.

The server can be ours or a real one; what differs from one run to the next is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.pocketkube.api.content import accepted, refused, table_cases

Obj = dict[str, Any]
Send = Callable[..., Awaitable[tuple[int, Obj]]]
"""Method, path, body and perhaps headers; a PATCH is a strategic merge patch."""

NAMESPACE = "refused"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CLUSTER_SCOPED = {
    *("namespaces", "nodes", "persistentvolumes", "priorityclasses", "storageclasses", "runtimeclasses"),
    *(
        "csidrivers",
        "deviceclasses",
        "clusterroles",
        "clusterrolebindings",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ),
}
# What differs from run to run, and dumps of Go structs, which nobody should imitate.
_MASKS = (
    (re.compile(r"kube-api-access-[a-z0-9]{5}"), "kube-api-access-?????"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r'"10\.96\.[0-9]+\.[0-9]+"(?!:)'), '"<address>"'),
    (re.compile(r'"nodePort": [0-9]+'), '"nodePort": 0'),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+Z-]+"), "<time>"),
    (re.compile(r"\n@@ .*|\n  core\.PodSpec\{.*", re.DOTALL), " <diff>"),
    (re.compile(r'value: \{"(?:[A-Z]|labels).*?\}: (?=[a-z`])'), "value: <struct>: "),
    (re.compile(r"Syntax error: [^\n]*"), "Syntax error"),
    (re.compile(r'Duplicate value: \{"[A-Z].*?\}'), "Duplicate value: <struct>"),
)


async def prepare(send: Send) -> None:
    await send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await send("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})


async def creation(send: Send, name: str) -> Obj:
    version, plural, obj = refused.created()[name]
    code, answer = await send("POST", f"{collection(version, plural)}?dryRun=All", named(obj))
    return outcome(code, answer)


async def update(send: Send, name: str) -> Obj:
    version, plural, old, patch = refused.UPDATES[name]
    home = collection(version, plural)
    place = f"{home}/{re.sub(r'[^a-z0-9]+', '-', name)}"
    code, current = await send("POST", home, {**old, "metadata": {"name": place.rpartition("/")[2]}})
    assert code in (201, 409), current
    code, answer = await send("PATCH", place, patch)
    await send("DELETE", f"{place}?gracePeriodSeconds=0&propagationPolicy=Background", None)
    return outcome(code, answer)


async def completed(send: Send, name: str) -> Obj:
    """What the server makes of an object that says little."""
    version, plural, obj = accepted.CASES[name]
    code, answer = await send("POST", f"{collection(version, plural)}?dryRun=All", named(obj))
    assert code == 201, answer
    for field in ("uid", "creationTimestamp", "managedFields", "resourceVersion"):
        answer["metadata"].pop(field, None)
    # A relic that only old controllers read; ours does not write it.
    if (answer["metadata"].get("annotations") or {}).pop("deprecated.daemonset.template.generation", None):
        del answer["metadata"]["annotations"]
    masked: Obj = json.loads(_masked(json.dumps(_without_nulls(answer))))
    return masked


async def printed(send: Send) -> Obj:
    """Columns and cells of every object of `accepted.py` and `table_cases.py`, with the object that they show."""
    found: Obj = {}
    for name, (version, plural, obj) in (accepted.CASES | table_cases.EVENTS).items():
        found[name] = await _table(send, "POST", f"{collection(version, plural)}?dryRun=All", named(obj))
    for name, (version, plural, obj, status) in table_cases.CASES.items():
        home = collection(version, plural)
        place = f"{home}/shown-{re.sub(r'[^a-z0-9]+', '-', name)}"
        metadata = {**obj.get("metadata", {}), "name": place.rpartition("/")[2]}
        whole = {**obj, "metadata": metadata}
        if plural == "jobs":  # or their controller would write a status too, and may do it first
            whole["spec"] = {**obj["spec"], "managedBy": "example.com/nobody"}
        code, answer = await send("POST", home, whole)
        assert code in (201, 409), answer
        found[name] = await _table(send, "PATCH", f"{place}/status?dryRun=All", {"status": status})
        await send("DELETE", f"{place}?gracePeriodSeconds=0&propagationPolicy=Background", None)
    return found


async def _table(send: Send, method: str, path: str, body: Obj) -> Obj:
    code, table = await send(method, f"{path}&includeObject=Object", body, headers={"accept": TABLE})
    assert code in (200, 201), table
    row = table["rows"][0]
    columns = [{key: column[key] for key in ("name", "type", "priority")} for column in table["columnDefinitions"]]
    row["object"]["metadata"].pop("managedFields", None)
    return {
        "columns": columns,
        "cells": masked_cells(columns, row["cells"]),
        "conditions": [each["reason"] for each in row.get("conditions") or ()],
        "object": row["object"],
    }


def masked_cells(columns: list[Obj], cells: list[Any]) -> list[Any]:
    """Without ages and other things that differ at every look."""
    ages = {"Age", "Last Seen", "First Seen", "Duration", "Last Schedule", "Created At"}
    masked = ["<age>" if column["name"] in ages and cell else cell for column, cell in zip(columns, cells, strict=True)]
    return [_masked_cell(cell) if isinstance(cell, str) else cell for cell in masked]


def _masked_cell(text: str) -> str:
    text = re.sub(r"\(.* ago\)", "(<age> ago)", text)
    text = re.sub(r"^10\.96\.[0-9]+\.[0-9]+$", "<address>", text)
    return _masked(re.sub(r":3[0-9]{4}/", ":<port>/", text))


def collection(version: str, plural: str) -> str:
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/{plural}" if plural in CLUSTER_SCOPED else f"{root}/namespaces/{NAMESPACE}/{plural}"


def named(obj: Obj) -> Obj:
    return {**obj, "metadata": {"name": "x", **obj.get("metadata", {})}}


def outcome(code: int, answer: Obj) -> Obj:
    """What can be compared of an answer: not the object, and nothing that is random."""
    if code < 400:
        return {"code": code}
    return {"code": code, "reason": answer.get("reason", ""), "message": _masked(answer.get("message", ""))}


def _masked(text: str) -> str:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def _without_nulls(value: Any) -> Any:
    """Go writes null where a list or a time is missing; nobody can tell that from nothing."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
