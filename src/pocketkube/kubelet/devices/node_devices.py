"""The devices of one node, put together: plugins that register, ids for pods at admission, and what a start needs."""

from __future__ import annotations

import asyncio
import base64
import os
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from apportion.apis import quantity
from apportion.apis.kubelet import checkpoint
from apportion.apis.kubelet import deviceplugin_pb2 as pb
from pocketkube.kubelet.devices.ledger import AllocationError, Held, Ledger
from pocketkube.kubelet.devices.plugin import Plugin, PluginError
from pocketkube.kubelet.devices.pod_resources import PodResourcesServer
from pocketkube.kubelet.devices.registration import RegistrationServer

Pod = Mapping[str, Any]

GRACE_SECONDS = 300.0  # a plugin that stays away for longer loses its resource


@dataclass
class RunOptions:
    """What the plugins' answers to Allocate add to a container."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: list[tuple[str, str]] = field(default_factory=list)  # host path, container path
    annotations: dict[str, str] = field(default_factory=dict)
    cdi: list[str] = field(default_factory=list)


class NodeDevices:
    """One node's device manager. `active` lists the pods that may hold devices; `changed` is called with new totals."""

    def __init__(
        self,
        kubelet_dir: Path,
        *,
        active: Callable[[], Iterable[Pod]],
        changed: Callable[[], None],
        rng: random.Random | None = None,
    ) -> None:
        self._folder = kubelet_dir / "device-plugins"
        self._active = active
        self._changed = changed
        self._rng = rng or random.Random()  # noqa: S311  a kubelet's order is arbitrary, not secret
        self.ledger = Ledger(self._rng)
        self._plugins: dict[str, Plugin] = {}
        self._graces: dict[str, asyncio.TimerHandle] = {}
        self._registration = RegistrationServer(self._folder, self._connect)
        self._pod_resources = PodResourcesServer(kubelet_dir / "pod-resources", self.ledger, active)

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._restore()
        await self._pod_resources.start()
        await self._registration.start()

    async def stop(self) -> None:
        for timer in self._graces.values():
            timer.cancel()
        self._graces.clear()
        await self._registration.stop()
        await self._pod_resources.stop()
        for plugin in self._plugins.values():
            await plugin.close()
        self._plugins.clear()

    def totals(self) -> dict[str, tuple[int, int]]:
        """Capacity and allocatable of every resource that plugins serve."""
        return self.ledger.totals()

    async def allocate(self, pod: Pod) -> None:
        """Give every container its devices, or raise AllocationError. Called for one pod at a time."""
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        self.ledger.keep_only({active["metadata"]["uid"] for active in self._active()} | {uid})
        for container in spec.get("initContainers") or []:
            await self._allocate_container(uid, container)
            if container.get("restartPolicy") == "Always":
                self.ledger.keep(uid, container["name"])
            else:
                self.ledger.hand_on(uid, container["name"])
        for container in spec["containers"]:
            await self._allocate_container(uid, container)
            self.ledger.keep(uid, container["name"])

    async def pre_start(self, uid: str, container: Mapping[str, Any]) -> None:
        """Tell the plugins that a container is about to start; raises PluginError."""
        for resource, _ in self._wanted(container):
            plugin = self._plugins.get(resource)
            if plugin is None:
                continue  # restored from the checkpoint, and its plugin has not come again yet
            held = self.ledger.held(uid, container["name"]).get(resource)
            if held is None:
                name = container["name"]
                raise PluginError(
                    f"no devices found allocated in local cache for pod {uid}, container {name}, resource {resource}"
                )
            await plugin.pre_start(sorted(held.ids))

    def run_options(self, uid: str, container: str) -> RunOptions:
        """What Allocate answered for all resources of a container, in an arbitrary order as in a real kubelet."""
        options = RunOptions()
        answers = list(self.ledger.held(uid, container).values())
        self._rng.shuffle(answers)
        for held in answers:
            response = pb.ContainerAllocateResponse.FromString(held.response)
            options.env.update(response.envs)
            options.mounts += [(mount.host_path, mount.container_path) for mount in response.mounts]
            options.annotations.update(response.annotations)
            options.cdi += [device.name for device in response.cdi_devices if device.name not in options.cdi]
        return options

    async def _allocate_container(self, uid: str, container: Mapping[str, Any]) -> None:
        for resource, count in self._wanted(container):
            ids = self.ledger.choose(uid, container["name"], resource, count)
            if not ids:
                continue
            plugin = self._plugins.get(resource)
            if plugin is None:
                raise AllocationError(f"unknown Device Plugin {resource}")
            ids = await self._by_preference(plugin, uid, ids)
            response = await plugin.allocate(sorted(ids))
            held = Held(ids, response.SerializeToString(deterministic=True))
            self.ledger.record(uid, container["name"], resource, held)
        self._write_checkpoint()

    async def _by_preference(self, plugin: Plugin, uid: str, ids: frozenset[str]) -> frozenset[str]:
        available, must = self.ledger.available(uid, plugin.resource)
        wish = frozenset(await plugin.preferred(available, must, len(ids)))
        return wish if len(wish) == len(ids) and wish <= set(available) else ids

    def _wanted(self, container: Mapping[str, Any]) -> list[tuple[str, int]]:
        """Resources of plugins that a container asks for, in an arbitrary order as in a real kubelet."""
        limits = container.get("resources", {}).get("limits") or {}
        wanted = [(name, quantity.whole(amount)) for name, amount in limits.items() if self.ledger.knows(name)]
        self._rng.shuffle(wanted)
        return [(name, count) for name, count in wanted if count > 0]

    # Plugins

    async def _connect(self, resource: str, socket: Path) -> None:
        plugin = Plugin(resource, socket, on_devices=self._devices, on_gone=self._gone)
        await plugin.connect()
        before = self._plugins.get(resource)
        self._plugins[resource] = plugin
        timer = self._graces.pop(resource, None)
        if timer is not None:
            timer.cancel()
        if before is not None:
            await before.close()

    def _devices(self, plugin: Plugin, devices: Mapping[str, bool]) -> None:
        if self._plugins.get(plugin.resource) not in (plugin, None):
            return
        self.ledger.set_devices(plugin.resource, devices)
        self._write_checkpoint()
        self._changed()

    def _gone(self, plugin: Plugin) -> None:
        if self._plugins.get(plugin.resource) is not plugin:
            return
        self.ledger.mark_unhealthy(plugin.resource)
        loop = asyncio.get_running_loop()
        self._graces[plugin.resource] = loop.call_later(GRACE_SECONDS, self._forget, plugin)
        self._changed()

    def _forget(self, plugin: Plugin) -> None:
        self._graces.pop(plugin.resource, None)
        if self._plugins.get(plugin.resource) is plugin:
            del self._plugins[plugin.resource]
            self.ledger.forget(plugin.resource)
            self._changed()

    # The checkpoint

    def _write_checkpoint(self) -> None:
        entries = [
            checkpoint.PodDevices(
                pod_uid=uid,
                container_name=container,
                resource_name=resource,
                device_ids={checkpoint.NO_NUMA_NODE: sorted(held.ids)},
                alloc_resp=base64.b64encode(held.response).decode(),
            )
            for uid, container, resource, held in self.ledger.entries()
        ]
        content = checkpoint.Content(entries or None, self.ledger.healthy())
        target = self._folder / checkpoint.FILE_NAME
        beside = self._folder / f".{checkpoint.FILE_NAME}.new"
        beside.write_bytes(checkpoint.encode(checkpoint.Checkpoint(content)))
        os.replace(beside, target)  # noqa: PTH105  one call, as the other side reads at any time

    def _restore(self) -> None:
        """After a restart: allocations as they were, devices unhealthy until their plugins come again."""
        try:
            before = checkpoint.decode((self._folder / checkpoint.FILE_NAME).read_bytes())
        except (OSError, msgspec.DecodeError):
            return
        for resource in before.registered():
            self.ledger.set_devices(resource, {})
        for entry in before.entries():
            held = Held(entry.ids(), base64.b64decode(entry.alloc_resp or ""))
            self.ledger.restore(entry.pod_uid, entry.container_name, entry.resource_name, held)
