"""What a pod's GPUs count for, in one unit: milli-GPU.

A whole GPU counts 1000, a share by its memory, a slice by its grid units over the GPU's. So one queue can mix
them. A placed pod is charged by the device it is on, a pending one by a device it could get: a share by the
smallest GPU that could hold it, a slice by the model of which it takes the smallest part.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from apportion.apis import names
from apportion.apis.identities import DeviceUUID
from apportion.apis.request import Request
from apportion.core.catalog import Catalog
from apportion.core.ledger import GpuLedger

if TYPE_CHECKING:
    from apportion.core.fleet import Fleet

MILLI = 1000


def held(fleet: Fleet, request: Request) -> int:
    """What a pod that has a node holds now."""
    uid = request.uid
    total = MILLI * request.whole_gpus + _static(fleet, request)
    if not fleet.holds(uid):
        return total
    for share in fleet.shares_of(uid):
        gpu = _gpu(fleet, share.gpu)
        total += _rounded_up(share.mib, gpu.memory_mib) if gpu is not None else 0
    for held in fleet.slices_of(uid):
        gpu = _gpu(fleet, held.gpu)
        total += _rounded_up(held.placement.size, gpu.grid.units) if gpu is not None else 0
    return total


def wanted(fleet: Fleet, request: Request) -> int | None:
    """What a pending pod would be charged; None if no GPU of the fleet could serve it."""
    if request.share is None and not request.slices:
        return MILLI * request.whole_gpus + _static(fleet, request)
    known = _known.get(fleet)
    if known is None or known[0] != fleet.inventory:
        known = _known[fleet] = (fleet.inventory, {})
    share = request.share
    asked = (share and (share.milli, share.memory_mib, share.devices), tuple(want.profile for want in request.slices))
    key = (asked, _static(fleet, request))
    if key not in known[1]:
        known[1][key] = _wanted(fleet, request)
    return known[1][key]


_known: WeakKeyDictionary[Fleet, tuple[int, dict[Hashable, int | None]]] = WeakKeyDictionary()


def _wanted(fleet: Fleet, request: Request) -> int | None:
    charges = [MILLI * request.whole_gpus, _static(fleet, request)]
    gpus = [gpu for node in fleet for gpu in node.gpus.values()]
    share = request.share
    if share is not None:
        holding = [gpu.memory_mib for gpu in gpus if not gpu.facts.mig and 0 < gpu.mib_of(share) <= gpu.memory_mib]
        if not holding:
            return None
        # The smallest GPU that could hold it: the largest part that it may turn out to be.
        charges.append(share.devices * share.milli_on(min(holding)))
    for want in request.slices:
        sizes = [
            _rounded_up(shape.size, gpu.grid.units)
            for gpu in gpus
            if gpu.facts.mig and (shape := gpu.grid.shape(want.profile))
        ]
        if not sizes:
            return None
        charges.append(min(sizes))
    return sum(charges)


def of_static_devices(catalog: Catalog, resources: Mapping[str, int]) -> int:
    """Static MIG devices, by the model of which they take the smallest part."""
    total = 0
    for resource, count in resources.items():
        if resource.startswith(names.NVIDIA_MIG_PREFIX):
            total += count * catalog.least_milli(resource.removeprefix(names.NVIDIA_MIG_PREFIX))
    return total


def _static(fleet: Fleet, request: Request) -> int:
    return of_static_devices(fleet.catalog, request.resources)


def _gpu(fleet: Fleet, uuid: DeviceUUID) -> GpuLedger | None:
    node = fleet.gpu_nodes.get(uuid)
    return fleet.nodes[node].gpus[uuid] if node is not None else None


def _rounded_up(part: int, whole: int) -> int:
    return -(-part * MILLI // whole) if whole else 0
