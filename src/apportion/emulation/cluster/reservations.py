"""`apportion reserve` on an embedded cluster: a coroutine, not a process for every shared GPU.

It does what the command does (`apportion.reserve`): find the one GPU of its container and write it on its own pod, with
the rights of that pod. A light node has no device plugin: there every reservation pod takes the first GPU of the node
that no other reservation pod has.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from apportion.apis import kinds, names, quantity
from apportion.cluster import errors
from apportion.core.catalog import Catalog
from apportion.emulation.gpus.inventory import Inventory, device_uuid
from apportion.node.hardware.partitioner import Refused
from apportion.reserve import device
from apportion.reserve.errors import Misconfigured
from pocketkube.clock import stamp
from pocketkube.plugins import OwnPlace

COMMAND = ("apportion", "reserve")
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.5, 30.0
_SLOW_SECONDS, _SLOW_ATTEMPTS = 10.0, 6


class Reservations:
    """The reservation pods of one cluster."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, set[str]] = defaultdict(set)  # GPUs of light nodes
        self._freed: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def main(self, place: OwnPlace) -> int:
        """Until it is stopped; ends with 1 if the container has no GPU, or its pod may not be changed."""
        if not place.light:
            return await _reserve(place, lambda: device.find(place.env, ask_driver=list))
        with self._own(await self._free_gpu(place), place) as gpu:
            return await _reserve(place, lambda: gpu)

    async def _free_gpu(self, place: OwnPlace) -> str:
        node = place.pod["spec"]["nodeName"]
        while True:
            free = next((gpu for gpu in whole_gpus(place.node) if gpu not in self._taken[node]), None)
            if free is not None:
                return free
            self._freed[node].clear()
            await self._freed[node].wait()

    @contextmanager
    def _own(self, gpu: str, place: OwnPlace) -> Iterator[str]:
        node = place.pod["spec"]["nodeName"]
        self._taken[node].add(gpu)
        try:
            yield gpu
        finally:
            self._taken[node].discard(gpu)
            self._freed[node].set()


async def _reserve(place: OwnPlace, find: Callable[[], str]) -> int:
    slow, seconds = 0, _RETRY_SECONDS
    while True:
        try:
            gpu = find()
            await _write(place, gpu)
            break
        except (Misconfigured, errors.Forbidden, errors.NotFound, errors.Invalid) as error:
            slow += 1
            _say(place, "ERROR", str(error))
            if slow == _SLOW_ATTEMPTS:
                return 1
            await place.clock.sleep(_SLOW_SECONDS)
        except errors.ClusterError as error:
            _say(place, "WARNING", f"{error}; next attempt in {seconds:g} s")
            await place.clock.sleep(seconds)
            seconds = min(seconds * 2, _LONGEST_RETRY_SECONDS)
    _say(place, "INFO", f"reserved GPU {gpu} for pods that share it")
    await asyncio.Event().wait()
    return 0


async def _write(place: OwnPlace, gpu: str) -> None:
    meta = place.pod["metadata"]
    patch = {"metadata": {"annotations": {names.RESERVED_GPU: gpu}}}
    await place.client.patch(kinds.PODS, meta["name"], patch, namespace=meta["namespace"])


def _say(place: OwnPlace, level: str, text: str) -> None:
    place.write(f"{stamp(place.clock.now()).removesuffix('Z')} {level} reserve {' '.join(text.split())}\n")


def whole_gpus(node: Mapping[str, Any]) -> list[str]:
    """The GPUs that a node offers as a whole, in their order: as it declares them, or as many as its capacity says."""
    name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    if names.EMULATED_GPUS in annotations:
        try:
            declared = Inventory.parse(annotations, Catalog.shipped()).gpus
        except Refused:
            return []
        return [device_uuid(name, index) for index, gpu in enumerate(declared) if not gpu.mig]
    capacity = (node.get("status") or {}).get("capacity") or {}
    return [device_uuid(name, index) for index in range(quantity.whole(capacity.get(names.NVIDIA_GPU, 0)))]
