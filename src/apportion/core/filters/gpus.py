"""Can the node's GPUs take what the pod asks of them?

For slices: a label, an agent that makes slices now, and a legal place for all of them together. For whole
GPUs and shares the node's resources decide unless its GPUs are known one by one.
"""

from __future__ import annotations

from collections import Counter

from apportion.apis import names
from apportion.apis.request import Request
from apportion.apis.shares import Share
from apportion.core.filters import resources
from apportion.core.fleet_facts import NodeFacts
from apportion.core.grid import Grid
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState
from apportion.core.placement import slice_search
from apportion.core.reasons import Code, Reason
from apportion.core.refusals import part_of


def against(node: NodeState, request: Request) -> Reason | None:
    reason = None
    if request.slices:
        reason = against_slices(node, request)
    elif request.whole_gpus and node.gpus:
        reason = against_whole(node, request)
    elif request.share is not None:
        reason = against_share(node, request)
    return reason or resources.against_gpu_resources(node, request)


def against_slicing(node: NodeState) -> Reason | None:
    """Why no slice at all can be created on this node."""
    if node.facts is None or not mig_capable(node.facts):
        return Reason(Code.NOT_MIG_CAPABLE)
    return None if node.ready else Reason(Code.AGENT_NOT_READY)


def against_slices(node: NodeState, request: Request) -> Reason | None:
    reason = against_slicing(node)
    if reason is not None:
        return reason
    wants = [want.profile for want in request.slices]
    missing = first_missing(node, wants)
    if missing is not None:
        return Reason(Code.NO_PROFILE, missing)
    if slice_search.fits(sliceable(node), wants):
        return None
    return _no_place(node, wants)


def mig_capable(facts: NodeFacts) -> bool:
    """The label that GPU discovery sets."""
    return facts.labels.get(names.MIG_CAPABLE_LABEL) == "true"


def against_whole(node: NodeState, request: Request) -> Reason | None:
    free = sum(gpu.takes_whole for gpu in node.gpus.values())
    total = sum(not gpu.facts.mig for gpu in node.gpus.values())
    if request.whole_gpus <= free:
        return None
    return Reason(Code.NO_DEVICE, names.NVIDIA_GPU, request.whole_gpus, free, total)


def against_share(node: NodeState, request: Request) -> Reason | None:
    share = request.share
    assert share is not None
    fitting = sum(left is not None for left in node.remainders_after(request))
    if fitting >= share.devices and _first_shares(node, request) <= node.unshared:
        return None
    gpus = list(node.shareable())
    if gpus and not any(gpu.facts.takes_shares for gpu in gpus):
        return Reason(Code.NO_SHARES)
    if share.memory_mib is not None and gpus and not any(gpu.facts.measured for gpu in gpus):
        return Reason(Code.MEMORY_UNKNOWN, names.GPU_MEMORY_LABEL)
    gpus = [gpu for gpu in gpus if gpu.mib_of(share)]
    if not gpus:
        return Reason(Code.NOT_SHAREABLE)
    with_room = sum(gpu.left_after(share) is not None for gpu in gpus)
    return _no_reservation(node, request) if with_room >= share.devices else _no_memory(gpus, share, with_room)


def _no_memory(gpus: list[GpuLedger], share: Share, with_room: int) -> Reason:
    if share.devices > 1:
        return Reason(Code.NO_MEMORY_ON_SEVERAL, part_of(share), share.devices, with_room, len(gpus))
    most = max(gpus, key=lambda gpu: (gpu.free_mib, gpu.memory_mib))
    if not most.facts.measured:
        return Reason(Code.NO_FRACTION, part_of(share))
    return Reason(Code.NO_MEMORY, share.annotation, most.mib_of(share), most.free_mib, most.memory_mib)


def _no_reservation(node: NodeState, request: Request) -> Reason:
    """There is memory, but no device or no pod with which another GPU could be held for those who share it."""
    free = node.free(names.NVIDIA_GPU)
    if node.facts is None or free >= _first_shares(node, request):
        return Reason(Code.NO_RESERVATION)
    offered = node.facts.allocatable.get(names.NVIDIA_GPU, 0)
    return Reason(Code.RESOURCE, names.NVIDIA_GPU, _first_shares(node, request), max(0, free), offered)


def _first_shares(node: NodeState, request: Request) -> int:
    """How many GPUs the pod would be the first to share, at the least."""
    assert request.share is not None
    share = request.share
    shared = sum(bool(gpu.shares) and gpu.left_after(share) is not None for gpu in node.shareable())
    return max(0, share.devices - shared)


def sliceable(node: NodeState) -> list[tuple[Grid, int]]:
    return [(gpu.grid, gpu.state) for gpu in sliceable_gpus(node)]


def sliceable_gpus(node: NodeState) -> list[GpuLedger]:
    return [gpu for gpu in node.gpus.values() if gpu.takes_slices]


def first_missing(node: NodeState, wants: list[str]) -> str | None:
    """A wanted profile that none of the node's sliceable GPUs has at all."""
    for profile in dict.fromkeys(wants):
        if not any(gpu.facts.mig and gpu.grid.shape(profile) for gpu in node.gpus.values()):
            return profile
    return None


def _no_place(node: NodeState, wants: list[str]) -> Reason:
    """Count the places of the profile that is hardest to place, else of the largest."""
    counts = Counter(wants)
    best: Reason | None = None
    for profile, need in sorted(counts.items()):
        free, total = places(node, profile)
        reason = Reason(Code.NO_PLACE, profile, need, free, total)
        if best is None or (free - need, profile) < (best.free - best.need, best.subject):
            best = reason
    assert best is not None
    return best


def places(node: NodeState, profile: str) -> tuple[int, int]:
    """How many slices of a profile the node could still take, and how many if it were empty."""
    free = total = 0
    for gpu in node.gpus.values():
        shape = gpu.grid.shape(profile)
        if shape is None or not gpu.facts.mig:
            continue
        total += shape.most
        if gpu.takes_slices:
            free += gpu.grid.room(gpu.state, shape)
    return free, total
