"""A watch: the stream of a response, cut into typed events."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from apportion.apis.kinds import Kind
from apportion.cluster import errors, wire

T = TypeVar("T")
log = logging.getLogger(__name__)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change. A bookmark's object is None: it only carries the version.

    An object that cannot be read counts as gone, as lists leave it out: DELETED with its key and no object.
    """

    type: str
    object: T | None
    resource_version: str
    key: tuple[str, str] | None = None


async def events(
    opening: Awaitable[AsyncIterator[bytes]], into: type[T], kind: Kind
) -> AsyncGenerator[WatchEvent[T], None]:
    stream = await opening
    try:
        async for line in _lines(stream):
            yield _event(line, into, kind)
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            with suppress(RuntimeError):
                await close()


async def _lines(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            if line:
                yield line
    # A broken last line is no event: the connection ended inside it, and the next watch brings it again.


def _event(line: bytes, into: type[T], kind: Kind) -> WatchEvent[T]:
    raw = wire.decode(line, wire.RawEvent)
    if raw.type == ERROR:
        status: dict[str, Any] = wire.decode(raw.object, dict)
        raise errors.from_status(status)
    if raw.type == BOOKMARK:
        version = wire.identify(wire.decode(raw.object, dict)).resource_version
        return WatchEvent(BOOKMARK, None, version)
    try:
        item = wire.decode(raw.object, into)
    except msgspec.ValidationError as error:
        log.error("ignoring invalid object %s: %s", wire.describe(raw.object, kind), error)  # noqa: TRY400
        namespace, name, _, version = wire.identify(wire.decode(raw.object, dict))
        return WatchEvent(DELETED, None, version, (namespace, name))
    return WatchEvent(raw.type, item, wire.identify(item).resource_version)
