"""A Kubernetes API client: the verbs, and nothing that needs a schema.

    async with Client.connect() as client:
        pod = await client.get(kinds.PODS, "a", namespace="default", into=Pod)

Objects come back as dicts, or as the Struct type given with `into`. Errors are those of
`cluster.errors`. Answers 429 and 503 that name a waiting time are waited out and repeated: the server
says with them that it did not act.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

from apportion import __version__
from apportion.apis.kinds import PODS, Kind
from apportion.cluster import access, errors, watching, wire
from apportion.cluster.log_levels import TRACE
from apportion.cluster.transport import HttpRequest, Response, Transport
from apportion.cluster.watching import WatchEvent
from apportion.cluster.wire import JSON, Body

__all__ = ["Client", "Listing", "PatchType", "WatchEvent"]

T = TypeVar("T")
log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
LONGEST_WAIT_SECONDS = 30.0
PAGE = 500
_FIRST_ERROR = 400
_TOO_MANY, _UNAVAILABLE = 429, 503


class PatchType(enum.Enum):
    """How a patch is to be read, as its media type."""

    merge = "application/merge-patch+json"
    json = "application/json-patch+json"
    strategic = "application/strategic-merge-patch+json"
    apply = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A consistent list, and the version from which a watch continues it."""

    items: list[T]
    resource_version: str


class Client:
    """One API server, as one user. Close it, or use it as an async context manager."""

    def __init__(self, transport: Transport, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._transport = transport
        self._timeout = timeout

    @classmethod
    def connect(cls) -> Client:
        """The cluster this process runs in, else the current kubeconfig."""
        return cls(access.connect())

    @classmethod
    def in_cluster(cls) -> Client:
        return cls(access.in_cluster())

    @classmethod
    def from_kubeconfig(cls, path: str | Path | None = None, *, context: str | None = None) -> Client:
        return cls(access.from_kubeconfig(path, context=context))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # Reading

    @overload
    async def get(self, kind: Kind, name: str, *, namespace: str | None = None) -> JSON: ...
    @overload
    async def get(self, kind: Kind, name: str, *, namespace: str | None = None, into: type[T]) -> T: ...
    async def get(self, kind: Kind, name: str, *, namespace: str | None = None, into: type[Any] = dict) -> Any:
        response = await self._call("GET", kind.path(namespace=namespace, name=_named(name)))
        return wire.decode(response.body, into)

    @overload
    async def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = PAGE,
    ) -> Listing[JSON]: ...
    @overload
    async def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = PAGE,
        into: type[T],
    ) -> Listing[T]: ...
    async def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = PAGE,
        into: type[Any] = dict,
    ) -> Listing[Any]:
        """All objects, page by page. If a page's token expires half-way, the list starts again."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit) if limit else None}
        path = kind.path(namespace=namespace)
        try:
            return await self._pages(path, query, into, kind)
        except errors.Gone:
            return await self._pages(path, {**query, "limit": None}, into, kind)

    @overload
    def watch(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        timeout_seconds: int | None = None,
    ) -> AsyncGenerator[WatchEvent[JSON], None]: ...
    @overload
    def watch(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        timeout_seconds: int | None = None,
        into: type[T],
    ) -> AsyncGenerator[WatchEvent[T], None]: ...
    def watch(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        timeout_seconds: int | None = None,
        into: type[Any] = dict,
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        """Changes as they happen, bookmarks included, until the server ends the stream.

        Raises Gone if the version is too old and Unreachable if the connection breaks. Close the
        iterator (`contextlib.aclosing`) when leaving early, else its connection stays open for a while.
        """
        timeout_seconds = timeout_seconds or random.randint(290, 590)  # noqa: S311  spreads reconnects
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_seconds),
        }
        return watching.events(self._open_watch(kind, namespace, query, timeout_seconds), into, kind)

    def logs(
        self,
        namespace: str,
        pod: str,
        container: str | None = None,
        *,
        follow: bool = False,
        previous: bool = False,
        tail: int | None = None,
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        query = {
            "container": container,
            "follow": _flag(follow),
            "previous": _flag(previous),
            "tailLines": str(tail) if tail is not None else None,
            "sinceSeconds": str(since_seconds) if since_seconds is not None else None,
            "timestamps": _flag(timestamps),
        }
        return self._log_chunks(PODS.path(namespace=namespace, name=_named(pod), subresource="log"), query)

    # Writing

    @overload
    async def create(self, kind: Kind, body: Body, *, namespace: str | None = None, dry_run: bool = False) -> JSON: ...
    @overload
    async def create(
        self, kind: Kind, body: Body, *, namespace: str | None = None, dry_run: bool = False, into: type[T]
    ) -> T: ...
    async def create(
        self, kind: Kind, body: Body, *, namespace: str | None = None, dry_run: bool = False, into: type[Any] = dict
    ) -> Any:
        namespace = namespace or wire.identify(body).namespace
        response = await self._call("POST", kind.path(namespace=namespace), body=body, kind=kind, dry_run=dry_run)
        return wire.decode(response.body, into)

    @overload
    async def replace(
        self, kind: Kind, body: Body, *, namespace: str | None = None, subresource: str | None = None
    ) -> JSON: ...
    @overload
    async def replace(
        self, kind: Kind, body: Body, *, namespace: str | None = None, subresource: str | None = None, into: type[T]
    ) -> T: ...
    async def replace(
        self,
        kind: Kind,
        body: Body,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        into: type[Any] = dict,
    ) -> Any:
        """PUT the whole object; a resourceVersion in the body makes it conditional."""
        identity = wire.identify(body)
        path = kind.path(namespace=namespace or identity.namespace, name=_named(identity.name), subresource=subresource)
        response = await self._call("PUT", path, body=body, kind=kind)
        return wire.decode(response.body, into)

    async def patch(
        self,
        kind: Kind,
        name: str,
        patch: Body | Sequence[Mapping[str, Any]] | bytes,
        *,
        namespace: str | None = None,
        how: PatchType = PatchType.merge,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> JSON:
        query = {"fieldManager": field_manager, "force": _flag(force)}
        path = kind.path(namespace=namespace, name=_named(name), subresource=subresource)
        response = await self._call("PATCH", path, query, body=patch, media=how.value, dry_run=dry_run)
        return wire.decode(response.body, dict)

    async def apply(
        self,
        kind: Kind,
        body: Body,
        *,
        field_manager: str,
        namespace: str | None = None,
        force: bool = True,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> JSON:
        """Server-side apply: the object as this manager wants it, created if need be."""
        identity = wire.identify(body)
        return await self.patch(
            kind,
            identity.name,
            wire.encode(body, kind),
            namespace=namespace or identity.namespace,
            how=PatchType.apply,
            subresource=subresource,
            field_manager=field_manager,
            force=force,
            dry_run=dry_run,
        )

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: int | None = None,
        propagation: str | None = None,
    ) -> JSON:
        """Delete one object; a uid or version that no longer matches raises Conflict."""
        options = _delete_options(uid, resource_version, grace, propagation)
        response = await self._call("DELETE", kind.path(namespace=namespace, name=_named(name)), body=options)
        return wire.decode(response.body, dict)

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        *,
        annotations: Mapping[str, str] | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Put a pod on a node; a pod of another uid or version, or one that is bound, raises Conflict.

        The server adds the annotations to the pod in the same write.
        """
        body: JSON = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        if resource_version:
            body["metadata"]["resourceVersion"] = resource_version
        if annotations:
            body["metadata"]["annotations"] = dict(annotations)
        path = PODS.path(namespace=namespace, name=_named(name), subresource="binding")
        await self._call("POST", path, body=body)

    async def evict(
        self, namespace: str, name: str, *, uid: str | None = None, grace: int | None = None, dry_run: bool = False
    ) -> None:
        """Evict through the Eviction API; raises TooManyRequests where a disruption budget forbids it."""
        body: JSON = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if uid is not None or grace is not None:
            body["deleteOptions"] = _delete_options(uid, None, grace, None)
        path = PODS.path(namespace=namespace, name=_named(name), subresource="eviction")
        await self._call("POST", path, body=body, dry_run=dry_run, attempts=1)

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Body | bytes | None = None,
        media: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """Any request, answered with the body as it is."""
        response = await self._call(method, path, query, body=body, media=media, accept=accept)
        return response.body or b""

    # One exchange

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        *,
        body: Body | Sequence[Mapping[str, Any]] | bytes | None = None,
        kind: Kind | None = None,
        media: str = "application/json",
        accept: str = "application/json",
        dry_run: bool = False,
        attempts: int = ATTEMPTS,
        stream: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109  handed on to the transport
    ) -> Response:
        pairs = {**(query or {}), "dryRun": "All" if dry_run else None}
        headers = {"accept": accept, "user-agent": f"apportion/{__version__}"}
        data = _encoded(body, kind)
        if data is not None:
            headers["content-type"] = media
        request = HttpRequest(method, path, tuple((k, v) for k, v in pairs.items() if v), headers, data)
        for attempt in range(1, attempts + 1):
            began = time.monotonic()
            response = await self._transport.send(request, stream=stream, timeout=timeout or self._timeout)
            log.log(TRACE, "%s %r: %d, %.0f ms", method, path, response.status, 1000 * (time.monotonic() - began))
            if response.status < _FIRST_ERROR:
                return response
            wait = errors.seconds(response.headers.get("retry-after"))
            if response.status not in (_TOO_MANY, _UNAVAILABLE) or wait is None or attempt == attempts:
                raise errors.from_response(response.status, response.body, response.headers)
            await asyncio.sleep(min(wait, LONGEST_WAIT_SECONDS) + random.random() / 10)  # noqa: S311
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _pages(self, path: str, query: Mapping[str, str | None], into: type[T], kind: Kind) -> Listing[T]:
        items: list[T] = []
        token = ""
        while True:
            response = await self._call("GET", path, {**query, "continue": token})
            page, info = wire.decode_items(response.body or b"{}", into, kind)
            items += page
            token = info.continue_
            if not token:
                return Listing(items, info.resource_version)

    async def _open_watch(
        self, kind: Kind, namespace: str | None, query: Mapping[str, str | None], seconds: int
    ) -> AsyncIterator[bytes]:
        # The server ends the stream by itself; if nothing arrives for longer, the connection is lost.
        silence = seconds + min(15.0, max(2.0, seconds / 4))
        response = await self._call("GET", kind.path(namespace=namespace), query, stream=True, timeout=silence)
        return _stream(response)

    async def _log_chunks(self, path: str, query: Mapping[str, str | None]) -> AsyncIterator[bytes]:
        response = await self._call("GET", path, query, accept="*/*", stream=True, timeout=24 * 3600.0)
        async for chunk in _stream(response):
            yield chunk


async def _stream(response: Response) -> AsyncIterator[bytes]:
    """The body in pieces, also if the server gave it whole."""
    if response.stream is None:
        yield response.body or b""
        return
    try:
        async for chunk in response.stream:
            yield chunk
    finally:
        close = getattr(response.stream, "aclose", None)
        if close is not None:
            await close()


def _named(name: str) -> str:
    """A name as a path segment; an empty one would silently address the whole collection."""
    if not name:
        raise ValueError("the object name is empty")
    return name


def _flag(value: bool) -> str | None:  # noqa: FBT001
    return "true" if value else None


def _encoded(body: Body | Sequence[Mapping[str, Any]] | bytes | None, kind: Kind | None) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, Mapping | msgspec.Struct):
        return wire.encode(body, kind)
    return msgspec.json.encode(body)


def _delete_options(uid: str | None, resource_version: str | None, grace: int | None, propagation: str | None) -> JSON:
    options: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if any(preconditions.values()):
        options["preconditions"] = {name: value for name, value in preconditions.items() if value}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation is not None:
        options["propagationPolicy"] = propagation
    return options
