"""Kinds that are not installed, or that may not be read, stop nobody, unless they are required."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.apis.meta import Bare
from apportion.cluster import errors
from apportion.cluster.informer import Informer
from apportion.cluster.optional_informers import OptionalInformer


class Refusing:
    """A client whose every request ends like this."""

    def __init__(self, error: errors.ClusterError) -> None:
        self._error = error
        self.asked = asyncio.Event()

    async def raw(self, *_: Any, **__: Any) -> bytes:
        self.asked.set()
        raise self._error


@pytest.mark.parametrize(
    ("error", "required", "synced"),
    [
        (errors.NotFound(404, "NotFound", "no such kind"), True, True),
        (errors.NotFound(404, "NotFound", "no such kind"), False, True),
        (errors.Forbidden(403, "Forbidden", "no"), False, True),
        (errors.Forbidden(403, "Forbidden", "no"), True, False),
        (errors.Unreachable("nobody there"), False, False),
    ],
)
async def test_what_cannot_be_read_is_known_to_be_absent_or_not_known(
    error: errors.ClusterError,
    required: bool,  # noqa: FBT001
    synced: bool,  # noqa: FBT001
) -> None:
    client: Any = Refusing(error)
    informer = OptionalInformer(client, Informer(client, kinds.QUEUES, into=Bare), required=required)
    running = asyncio.create_task(informer.run())
    await client.asked.wait()
    await asyncio.sleep(0)
    assert informer.has_synced is synced
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
