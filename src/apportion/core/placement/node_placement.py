"""Where on a node a pod goes: its slices, its share or its whole GPUs, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request, SliceRequest
from apportion.core.filters import gpus as gpu_rules
from apportion.core.grid import Grid, Shape
from apportion.core.node import NodeState
from apportion.core.placement import node_prices, slice_search
from apportion.core.placement.node_prices import MILLI, ORDER
from apportion.core.policies import PACK, SPREAD, Policy


class NodePlacement(msgspec.Struct, frozen=True):
    """A pod's place on one node: new slices, whole GPUs (`devices`) or shares as (GPU, MiB)."""

    node: NodeName
    price: int
    slices: tuple[tuple[SliceRequest, SlicePlacement], ...] = ()
    devices: tuple[DeviceUUID, ...] = ()
    shares: tuple[tuple[DeviceUUID, int], ...] = ()


def placement(
    node: NodeState, request: Request, policy: Policy, wants: Sequence[SliceRequest] | None = None
) -> NodePlacement | None:
    """The best place for the pod on this node by the policy, None if its GPUs cannot take it.

    `wants` are the slices that it still needs, if it holds others already.
    """
    if request.slices:
        return _slice_placement(node, request.slices if wants is None else wants, policy)
    option = node_prices.best_option(node, request, policy)
    return numbered_placement(node, request, option.price, option.gpus) if option is not None else None


def numbered_placement(node: NodeState, request: Request, price: int, numbers: tuple[int, ...]) -> NodePlacement:
    """The placement of a share or of whole GPUs, the GPUs given by position."""
    gpus = list(node.shareable()) if numbers else []
    chosen = [gpus[number] for number in numbers] if gpus else []
    share = request.share
    if share is None:
        return NodePlacement(node.name, price, devices=tuple(gpu.uuid for gpu in chosen))
    return NodePlacement(node.name, price, shares=tuple((gpu.uuid, gpu.mib_of(share)) for gpu in chosen))


def slice_price(
    grids: list[tuple[Grid, int]], wants: list[str], policy: Policy
) -> tuple[int, list[slice_search.Position]] | None:
    """What slices of these profiles cost on these GPUs, and where they go; None if they do not fit."""

    def cost(index: int, before: int, after: int, _shape: Shape, start: int) -> tuple[int, ...]:
        return (policy.slice_price(grids[index][0], before, after, start),)

    positions = slice_search.arrange(grids, wants, cost)
    if positions is None:
        return None
    states = [state for _, state in grids]
    total = 0
    for profile, (index, start) in zip(wants, positions, strict=True):
        grid = grids[index][0]
        shape = grid.shape(profile)
        assert shape is not None
        after = grid.put(states[index], shape, start)
        total += policy.slice_price(grid, states[index], after, start)
        states[index] = after
    return total, positions


def node_part(node: NodeState, policy: Policy) -> int:
    """What the policy says about the node as a whole, for slices."""
    if policy.name not in {PACK, SPREAD}:
        return 0
    gpus = gpu_rules.sliceable_gpus(node)
    units = sum(gpu.grid.units for gpu in gpus)
    free = sum(gpu.grid.free_units(gpu.state) for gpu in gpus)
    share = MILLI * free // units if units else 0
    return ORDER * (share if policy.name == PACK else -share)


def _slice_placement(node: NodeState, wants: Sequence[SliceRequest], policy: Policy) -> NodePlacement | None:
    gpus = gpu_rules.sliceable_gpus(node)
    priced = slice_price([(gpu.grid, gpu.state) for gpu in gpus], [want.profile for want in wants], policy)
    if priced is None:
        return None
    price, positions = priced
    placed = []
    for want, (index, start) in zip(wants, positions, strict=True):
        shape = gpus[index].grid.shape(want.profile)
        assert shape is not None
        placed.append((want, SlicePlacement(gpus[index].uuid, want.profile, start, shape.size)))
    return NodePlacement(node.name, node_part(node, policy) + price, tuple(placed))
