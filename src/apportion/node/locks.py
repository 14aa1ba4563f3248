"""Who may work on what at a time: one task per pod, and within it one per GPU.

Always in this order, and one GPU at a time, so there are no deadlocks. A slow GPU delays only the tasks that need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from apportion.apis.identities import DeviceUUID, PodUID


class Locks:
    def __init__(self) -> None:
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._users: dict[tuple[str, str], int] = {}

    def pod(self, uid: PodUID) -> AbstractAsyncContextManager[None]:
        return self._hold(("pod", uid))

    def gpu(self, uuid: DeviceUUID) -> AbstractAsyncContextManager[None]:
        return self._hold(("gpu", uuid))

    @asynccontextmanager
    async def _hold(self, key: tuple[str, str]) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
