"""What can happen to an object of a stream: it is told to go, runs, ends."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def delete(obj: Json) -> None:
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def let_through(obj: Json) -> None:
    del obj["spec"]["schedulingGates"]


def run(obj: Json) -> None:
    obj["status"] = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


def end(obj: Json) -> None:
    obj["status"]["phase"] = "Succeeded"


def delete_running(obj: Json) -> None:
    run(obj)
    delete(obj)


def delete_ended(obj: Json) -> None:
    delete(obj)
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
    obj["status"] = {"phase": "Running", "containerStatuses": [ended]}


def delete_but_sidecar(obj: Json) -> None:
    delete_ended(obj)
    obj["status"]["initContainerStatuses"] = [{"name": "side", "state": {"running": {}}}]
