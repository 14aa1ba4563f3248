"""Keeps every plugin registered with the kubelet, however often it restarts.

A kubelet that starts removes all sockets of its folder and makes its own again. So: whenever its socket
is another one than last time, a socket of ours is gone, or the kubelet stopped listening to a plugin,
serve first (the kubelet dials back while it registers us), then register. Inode numbers are reused at
once on some file systems, hence the change time beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import grpc

from apportion.apis.kubelet import deviceplugin_pb2 as wire
from apportion.apis.kubelet import deviceplugin_pb2_grpc as rpc
from apportion.node.kubelet.device_plugin import SOCKET_PREFIX, Plugin

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
POLL_SECONDS = 0.5
DIAL_SECONDS = 10.0
SILENCE_SECONDS = 3.0

log = logging.getLogger(__name__)

Fingerprint = tuple[int, int, int]


class Registrar:
    def __init__(self, folder: Path, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._folder = folder
        self._poll = poll_seconds
        self._plugins: dict[str, Plugin] = {}
        self._registered: dict[str, Fingerprint] = {}
        self._silent_since: dict[str, float] = {}

    def add(self, plugin: Plugin) -> None:
        self._plugins[plugin.resource] = plugin

    async def remove(self, resource: str) -> None:
        """Stop serving a resource, because another device plugin serves it."""
        plugin = self._plugins.pop(resource, None)
        self._registered.pop(resource, None)
        if plugin is not None:
            await plugin.stop()

    def get(self, resource: str) -> Plugin | None:
        return self._plugins.get(resource)

    def plugins(self) -> list[Plugin]:
        return list(self._plugins.values())

    @property
    def complete(self) -> bool:
        """Does the kubelet that runs now know every plugin?"""
        current = self._fingerprint()
        return current is not None and all(self._registered.get(name) == current for name in self._plugins)

    async def run(self) -> None:
        """Register and keep registered until cancelled."""
        self._remove_leftovers()
        while True:
            await self._round()
            await asyncio.sleep(self._poll)

    async def stop(self) -> None:
        """Take the sockets away; the kubelet counts the devices as unhealthy from then on."""
        await asyncio.gather(*(plugin.stop() for plugin in self._plugins.values()), return_exceptions=True)

    async def _round(self) -> None:
        current = self._fingerprint()
        if current is None:
            self._registered.clear()
            return
        due = [plugin for plugin in self._plugins.values() if self._due(plugin, current)]
        if not due:
            return
        try:
            # Its own connection: a shared one may still wait out the failures of the kubelet before.
            options = (("grpc.use_local_subchannel_pool", 1),)
            target = f"unix:{self._folder / KUBELET_SOCKET}"
            async with grpc.aio.insecure_channel(target, options=options) as channel:
                for plugin in due:
                    await self._register(plugin, channel, current)
        except (grpc.aio.AioRpcError, OSError) as error:
            text = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
            log.warning("registration with the kubelet failed, retrying: %s", text)

    def _due(self, plugin: Plugin, current: Fingerprint) -> bool:
        if self._registered.get(plugin.resource) != current or not plugin.reachable:
            return True
        if plugin.streams:
            self._silent_since.pop(plugin.resource, None)
            return False
        now = asyncio.get_running_loop().time()
        return now - self._silent_since.setdefault(plugin.resource, now) > SILENCE_SECONDS

    async def _register(self, plugin: Plugin, channel: grpc.aio.Channel, current: Fingerprint) -> None:
        self._registered.pop(plugin.resource, None)
        self._silent_since.pop(plugin.resource, None)
        endpoint = await plugin.serve(self._folder)
        stub = rpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
        request = wire.RegisterRequest(
            version=VERSION, endpoint=endpoint, resource_name=plugin.resource, options=plugin.options
        )
        await stub.Register(request, timeout=DIAL_SECONDS)
        self._registered[plugin.resource] = current
        log.info("registered %s with %d devices", plugin.resource, len(plugin.devices))

    def _fingerprint(self) -> Fingerprint | None:
        try:
            found = (self._folder / KUBELET_SOCKET).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_ctime_ns

    def _remove_leftovers(self) -> None:
        """Sockets of a killed agent do not respond."""
        with contextlib.suppress(OSError):
            for path in self._folder.glob(f"{SOCKET_PREFIX}*.sock"):
                path.unlink(missing_ok=True)
