"""Logs: what a pod's containers printed, from whoever runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from apportion.cluster.transport import Response
from pocketkube.api import status
from pocketkube.api.routing import is_true
from pocketkube.api.storage import listing
from pocketkube.api.storage.listing import whole_number

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of which log; None means no limit."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str | None = None
    limit_bytes: int | None = None


class LogSource(Protocol):
    """The kubelets, as the API server sees them. Raises ApiStatus when there is no such log."""

    async def open_log(self, pod: Obj, options: LogOptions) -> AsyncIterator[bytes]: ...


async def read(pod: Obj, source: LogSource | None, query: Mapping[str, str]) -> Response:
    """The log of one container as plain text."""
    options = LogOptions(
        container=_container(pod, query.get("container", "")),
        follow=is_true(query.get("follow")),
        previous=is_true(query.get("previous")),
        timestamps=is_true(query.get("timestamps")),
        tail_lines=_limit(query, "tailLines", least=0),
        since_seconds=_limit(query, "sinceSeconds", least=1),
        since_time=query.get("sinceTime"),
        limit_bytes=_limit(query, "limitBytes", least=1),
    )
    headers = {"content-type": "text/plain"}
    if not (pod.get("spec") or {}).get("nodeName"):
        return Response(204, headers, b"")
    if source is None:
        raise status.ApiStatus(503, "ServiceUnavailable", "no kubelet serves logs in this cluster", {})
    return Response(200, headers, stream=await source.open_log(pod, options))


def _container(pod: Obj, asked: str) -> str:
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    names: list[str] = [each["name"] for each in spec.get("containers") or []]
    init = [each["name"] for each in spec.get("initContainers") or []]
    ephemeral = [each["name"] for each in spec.get("ephemeralContainers") or []]
    if asked:
        if asked not in (*names, *init, *ephemeral):
            raise status.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(names) == 1:
        return names[0]
    others = f" or one of the init containers: [{' '.join(init)}]" if init else ""
    raise status.bad_request(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]{others}"
    )


def _limit(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    if not query.get(name):
        return None
    value = whole_number(query, name)
    if value < least:
        problem = f"Invalid value: {value}: must be greater than {'or equal to 0' if least == 0 else '0'}"
        raise listing.invalid_options("PodLogOptions", name, problem)
    return value
