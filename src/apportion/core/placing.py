"""Where on a node a pod goes: its slices, its share or its whole GPUs, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis.claims import claim_name
from apportion.apis.request import Request, SliceWant
from apportion.core import scoring, search
from apportion.core.facts import SlicePlacement
from apportion.core.filters import gpus as gpu_rules
from apportion.core.fleet import Fleet, SliceRecord
from apportion.core.grid import Grid, Shape
from apportion.core.node import NodeState
from apportion.core.policies import PACK, SPREAD, Policy
from apportion.core.scoring import MILLI, ORDER


@dataclass(frozen=True)
class Seat:
    """A pod's place on one node. `held` are slices that it has there already; shares are (GPU, MiB)."""

    node: str
    price: int
    slices: tuple[SlicePlacement, ...] = ()
    held: tuple[SlicePlacement, ...] = ()
    devices: tuple[str, ...] = ()
    shares: tuple[tuple[str, int], ...] = ()


def seat(node: NodeState, request: Request, policy: Policy, held: tuple[SlicePlacement, ...] = ()) -> Seat | None:
    """The best place for the pod on this node by the policy, None if its GPUs cannot take it."""
    if request.slices:
        return _slice_seat(node, request, policy, held)
    option = scoring.best_option(node, request, policy)
    return numbered_seat(node, request, option.price, option.gpus) if option is not None else None


def numbered_seat(node: NodeState, request: Request, price: int, numbers: tuple[int, ...]) -> Seat:
    """The seat for a share or whole GPUs, its GPUs given by position."""
    gpus = list(node.shareable()) if numbers else []
    chosen = [gpus[number] for number in numbers] if gpus else []
    share = request.share
    if share is None:
        return Seat(node.name, price, devices=tuple(gpu.uuid for gpu in chosen))
    return Seat(node.name, price, shares=tuple((gpu.uuid, share.mib_on(gpu.memory_mib)) for gpu in chosen))


def slice_price(
    grids: list[tuple[Grid, int]], wants: list[str], policy: Policy
) -> tuple[int, list[search.Seat]] | None:
    """What slices of these profiles cost on these GPUs, and where they go; None if they do not fit."""

    def cost(index: int, before: int, after: int, _shape: Shape, start: int) -> tuple[int, ...]:
        return (policy.slice_price(grids[index][0], before, after, start),)

    seats = search.arrange(grids, wants, cost)
    if seats is None:
        return None
    states = [state for _, state in grids]
    total = 0
    for profile, (index, start) in zip(wants, seats, strict=True):
        grid = grids[index][0]
        shape = grid.shape(profile)
        assert shape is not None
        after = grid.put(states[index], shape, start)
        total += policy.slice_price(grid, states[index], after, start)
        states[index] = after
    return total, seats


def node_part(node: NodeState, policy: Policy) -> int:
    """What the policy says about the node as a whole, for slices."""
    if policy.name not in {PACK, SPREAD}:
        return 0
    gpus = gpu_rules.sliceable_gpus(node)
    units = sum(gpu.grid.units for gpu in gpus)
    free = sum(gpu.grid.free_units(gpu.state) for gpu in gpus)
    share = MILLI * free // units if units else 0
    return ORDER * (share if policy.name == PACK else -share)


def held_slices(fleet: Fleet, request: Request) -> tuple[SlicePlacement, ...] | None:
    """Slices that the cluster already holds for this pod under the names that its wants have.

    None if one of them is not what the pod asks for: such leftovers must go first.
    """
    records = {record.key: record for record in fleet.slices_of(request.uid)}
    if not records:
        return ()
    held: list[SlicePlacement] = []
    for want in request.slices:
        record = records.pop(claim_name(request.uid, want.container, want.index), None)
        if record is None:
            continue
        if record.profile != want.profile:
            return None
        held.append(_held(want, record))
    return tuple(held) if not records else None


def _slice_seat(node: NodeState, request: Request, policy: Policy, held: tuple[SlicePlacement, ...]) -> Seat | None:
    has = {(piece.container, piece.index) for piece in held}
    wants = [want for want in request.slices if (want.container, want.index) not in has]
    gpus = gpu_rules.sliceable_gpus(node)
    priced = slice_price([(gpu.grid, gpu.state) for gpu in gpus], [want.profile for want in wants], policy)
    if priced is None:
        return None
    price, seats = priced
    placements = []
    for want, (index, start) in zip(wants, seats, strict=True):
        shape = gpus[index].grid.shape(want.profile)
        assert shape is not None
        placements.append(_placement(want, gpus[index].uuid, start, shape.size))
    return Seat(node.name, node_part(node, policy) + price, tuple(placements), held)


def _placement(want: SliceWant, gpu: str, start: int, size: int) -> SlicePlacement:
    return SlicePlacement(want.container, want.containers, want.index, want.profile, gpu, start, size)


def _held(want: SliceWant, record: SliceRecord) -> SlicePlacement:
    return _placement(want, record.gpu, record.start, record.size)
