"""The best place in the fleet for one pod.

Two ways to the same answer. The plain one asks every node every question. The fast one keeps a row of prices
per class of request and works out anew only what changed (see `price_cache`); pods whose rules look at other
pods, ports or volumes go the plain way.

Nodes to which the pod could not be bound come last, in the order in which that happened.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from apportion.apis.request import Request
from apportion.core import existing_claims
from apportion.core.filters import Checks, podaffinity
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import HeldSlice
from apportion.core.placement.node_placement import NodePlacement, placement
from apportion.core.placement.node_table import NodeTable
from apportion.core.placement.preferences import Preferences, prefers_by_pods
from apportion.core.placement.price_cache import Ranking
from apportion.core.policies import Policy

_MOST_RANKINGS = 8


def best_placement(fleet: Fleet, request: Request, policy: Policy, *, plain: bool = False) -> NodePlacement | None:
    """The best place, None if there is none; `explanations` says why."""
    policy.prepare(fleet)
    if plain or not by_node_alone(fleet, request):
        return _by_checks(fleet, request, policy)
    return _ranking(fleet, policy).best(fleet, request)


def placement_beside(
    fleet: Fleet, request: Request, policy: Policy, held: tuple[HeldSlice, ...]
) -> NodePlacement | None:
    """The best place for the rest of what a pod asks for, on the node of the slices that it holds."""
    policy.prepare(fleet)
    node = fleet.nodes[fleet.gpu_nodes[held[0].gpu]]
    return placement(node, request, policy, existing_claims.missing(request, held))


def by_node_alone(fleet: Fleet, request: Request) -> bool:
    """True if a node's answer depends on nothing but that node: no pods elsewhere, ports or volumes matter."""
    rules = request.rules
    if rules.about_pods or rules.ports or request.has_volume_claims or prefers_by_pods(request):
        return False
    if not fleet.apart:
        return True
    neighbours = podaffinity.prepare(fleet, request)
    return neighbours is None or not neighbours.kept_apart


class _ScoreCache:
    """The table of one fleet's nodes, with the rankings of the policies that were asked for lately."""

    def __init__(self, fleet: Fleet) -> None:
        self._nodes = NodeTable(fleet)
        self._rankings: dict[Policy, Ranking] = {}

    def ranking(self, policy: Policy) -> Ranking:
        ranking = self._rankings.pop(policy, None) or Ranking(self._nodes, policy)
        if len(self._rankings) >= _MOST_RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        self._rankings[policy] = ranking
        return ranking


_caches: WeakKeyDictionary[Fleet, _ScoreCache] = WeakKeyDictionary()


def _ranking(fleet: Fleet, policy: Policy) -> Ranking:
    cache = _caches.get(fleet)
    if cache is None:
        cache = _caches[fleet] = _ScoreCache(fleet)
    return cache.ranking(policy)


def _by_checks(fleet: Fleet, request: Request, policy: Policy) -> NodePlacement | None:
    checks = Checks(fleet, request)
    preferred = Preferences(fleet, request)
    failed = {node: number for number, node in enumerate(fleet.failed_nodes.get(request.uid, ()), 1)}
    best: tuple[int, int, int, NodePlacement] | None = None
    for node in fleet:
        option = placement(node, request, policy) if checks.against(node) is None else None
        if option is None:
            continue
        rank = (failed.get(node.name, 0), -preferred.of(node), option.price)
        if best is None or rank < best[:3]:
            best = (*rank, option)
    return best[3] if best else None
