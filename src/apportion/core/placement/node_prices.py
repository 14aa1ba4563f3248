"""What a place costs: the policies in plain arithmetic, one node at a time.

This is the reference; `array_prices` computes the same numbers for many nodes at once. A price is an integer, the
lowest wins. For `fragmentation` it is in millionths of a GPU and adds up, in this order of weight:

    slots      a remainder that fits usual requests well is worth more than one that fits none
    waste      free GPU that the usual requests could not use any more (fragmentation gradient)
    stranding  free GPU for which the node would have too little CPU left
    scarcity   GPUs of a product that other pods insist on
    joining    a share goes to a GPU that is shared already
    balance    CPU and GPU of a node should run out together
    fit        fuller nodes first
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.apis.request import Request
from apportion.core.node import CPU, MOST_CPU, NodeState
from apportion.core.placement.fragmentation_tables import FragmentationTables, product_of
from apportion.core.policies import BEST_FIT, FIRST_FIT, FRAGMENTATION, PACK, SPREAD, Policy

SLOTS = 30
BALANCE_MICRO = 300_000
STRANDING_MICRO_PER_MILLI = 1500
JOINING_MICRO = BALANCE_MICRO  # balance alone never opens another GPU
FIT_MICRO_PER_MILLI = (25, 2)  # a tenth of a GPU for eight GPUs
MILLI = 1000
MICRO = 10**6
ORDER = 10**10  # one step of the first criterion outweighs the second
STEP = 10**5


class Room(NamedTuple):
    """A node before or after a placement: free CPU, and what is left of each GPU in milli."""

    cpu: int
    left: tuple[int, ...]

    @property
    def gpu(self) -> int:
        return sum(self.left)


Way = tuple[tuple[int, ...], Room]  # which GPUs, and the node afterwards


class Option(NamedTuple):
    """A way to put a request on a node: its price and the GPUs, by position."""

    price: int
    gpus: tuple[int, ...] = ()


def best_option(node: NodeState, request: Request, policy: Policy) -> Option | None:
    """The cheapest way by the policy; None if the GPUs do not suffice. Ties go to the lower position."""
    before = Room(node.free_cpu, node.remainders())
    options = [
        Option(_price(node, before, after, request, policy), gpus)
        for gpus, after in _ways(node, before, request, policy)
    ]
    return min(options) if options else None


def _ways(node: NodeState, before: Room, request: Request, policy: Policy) -> list[Way]:
    cpu = before.cpu - cpu_of(request)
    if request.share is not None:
        return _share_ways(node, before, request, policy, cpu)
    if not request.whole_gpus:
        return [((), Room(cpu, before.left))]
    free = [number for number, milli in enumerate(before.left) if milli == MILLI]
    if len(free) < request.whole_gpus:
        return []
    chosen = tuple(free[: request.whole_gpus])
    return [(chosen, Room(cpu, tuple(0 if n in chosen else milli for n, milli in enumerate(before.left))))]


def _share_ways(node: NodeState, before: Room, request: Request, policy: Policy, cpu: int) -> list[Way]:
    after = node.remainders_after(request)
    fitting = [number for number, milli in enumerate(after) if milli is not None]
    share = request.share
    assert share is not None
    if len(fitting) < share.devices:
        return []
    ways: list[Way] = [((number,), _replaced(cpu, before, after, (number,))) for number in fitting]
    if share.devices == 1:
        return ways
    ranked = sorted(ways, key=lambda way: (_price(node, before, way[1], request, policy), way[0]))
    chosen = _several(node, [way[0][0] for way in ranked], share.devices)
    return [(chosen, _replaced(cpu, before, after, chosen))] if chosen else []


def _several(node: NodeState, ranked: list[int], wanted: int) -> tuple[int, ...] | None:
    """The best GPUs of one pod, with no more fresh ones among them than the kubelet can still allocate."""
    gpus = list(node.shareable())
    fresh = node.unshared
    chosen: list[int] = []
    for number in ranked:
        if not gpus[number].shares:
            if fresh <= 0:
                continue
            fresh -= 1
        chosen.append(number)
        if len(chosen) == wanted:
            return tuple(sorted(chosen))
    return None


def _replaced(cpu: int, before: Room, after: tuple[int | None, ...], chosen: tuple[int, ...]) -> Room:
    left = list(before.left)
    for number in chosen:
        milli = after[number]
        assert milli is not None
        left[number] = milli
    return Room(cpu, tuple(left))


def _price(node: NodeState, before: Room, after: Room, request: Request, policy: Policy) -> int:
    if policy.name == FIRST_FIT:
        return 0
    if policy.name == FRAGMENTATION:
        return _fragmentation(node, before, after, policy.tables) + (
            JOINING_MICRO * newly_shared(before, after) if request.share else 0
        )
    tight = tightness(before, after, request)
    if policy.name == BEST_FIT:
        return tight
    assert policy.name in {PACK, SPREAD}
    price = ORDER * emptiness(node, before, request) + tight
    return price if policy.name == PACK else -price


def newly_shared(before: Room, after: Room) -> int:
    """How many GPUs the share would be the first on."""
    return sum(was == MILLI != now for was, now in zip(before.left, after.left, strict=True))


def cpu_of(request: Request) -> int:
    """The CPU that a pod asks for, as prices see it."""
    return min(request.resources.get(CPU, 0), MOST_CPU)


def tightness(before: Room, after: Room, request: Request) -> int:
    """What is left behind: on the GPU for a share, on the node's GPUs for whole ones, else of its CPU."""
    if request.share is not None:
        touched = [now for was, now in zip(before.left, after.left, strict=True) if was != now]
        return STEP * sum(touched) + after.gpu
    return STEP * after.gpu if request.whole_gpus else after.cpu


def emptiness(node: NodeState, before: Room, request: Request) -> int:
    """Thousandths of the node that are free: of its GPUs if the pod asks for some, else of its CPU."""
    if request.wants_gpu:
        return before.gpu // len(before.left) if before.left else 0
    total = node.all_cpu
    return MILLI * before.cpu // total if total else 0


def _fragmentation(node: NodeState, before: Room, after: Room, tables: FragmentationTables) -> int:
    product = product_of(node)
    slots = sum(tables.remainder[milli] for milli in before.left) - sum(tables.remainder[milli] for milli in after.left)
    waste = tables.unusable(after.cpu, after.left, product) - tables.unusable(before.cpu, before.left, product)
    gpu = after.gpu
    price = SLOTS * slots + MILLI * waste // tables.total + gpu * FIT_MICRO_PER_MILLI[0] // FIT_MICRO_PER_MILLI[1]
    price += _imbalance(node, after)
    taken = before.gpu - gpu
    if taken:
        price += STRANDING_MICRO_PER_MILLI * (stranded(after, tables) - stranded(before, tables))
        price += tables.scarcity.get(product, 0) * taken // (2 * MILLI)
    return price


def stranded(room: Room, tables: FragmentationTables) -> int:
    """Free milli-GPU beyond what the free CPU can serve."""
    if not tables.cpu_per_gpu:
        return 0
    return max(0, room.gpu - room.cpu * MILLI // tables.cpu_per_gpu)


def _imbalance(node: NodeState, after: Room) -> int:
    cpu = node.all_cpu
    if cpu <= 0:
        return 0
    gpu = MILLI * max(1, len(after.left))
    return BALANCE_MICRO * abs(after.cpu * gpu - after.gpu * cpu) // (cpu * gpu)
