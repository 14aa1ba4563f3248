"""The best place in the fleet for one pod.

Two ways to the same answer. The plain one asks every node every question. The fast one keeps a row of prices
per class of request and works out anew only what changed (see `ranking`); pods whose rules look at other
pods, ports or volumes go the plain way.
"""

from __future__ import annotations

from apportion.apis.request import Request
from apportion.core.board import Board
from apportion.core.facts import SlicePlacement
from apportion.core.filters import Checks, podaffinity
from apportion.core.fleet import Fleet
from apportion.core.placing import Seat, held_slices, seat
from apportion.core.policies import Policy
from apportion.core.preferences import preference, wishes_about_pods
from apportion.core.ranking import Ranking
from apportion.core.reasons import Code, Reason

Reasons = dict[str, Reason]

_MOST_RANKINGS = 8


def best_seat(fleet: Fleet, request: Request, policy: Policy, *, plain: bool = False) -> Seat | None:
    """The best place, None if there is none; `reasons_against` says why."""
    policy.prepare(fleet)
    held = held_slices(fleet, request)
    if held is None:
        return None
    if held or plain or not _alone(fleet, request):
        return _plain_seat(fleet, request, policy, held)
    return _ranking(fleet, policy).best(request)


def reasons_against(fleet: Fleet, request: Request) -> Reasons:
    """Why each node cannot take a pod that has no seat."""
    held = held_slices(fleet, request)
    if held is None:
        return {node.name: Reason(Code.LEFTOVER_CLAIMS) for node in fleet}
    checks = Checks(fleet, request)
    home = _home(fleet, held)
    nowhere = Reason(Code.NO_PLACE, request.slices[0].profile if request.slices else "")
    return {
        node.name: Reason(Code.WRONG_NODE, home) if home and node.name != home else checks.against(node) or nowhere
        for node in fleet
    }


def _alone(fleet: Fleet, request: Request) -> bool:
    """True if a node's answer depends on nothing but that node: no pods elsewhere, ports or volumes matter."""
    rules = request.rules
    if rules.about_pods or rules.ports or rules.claims or wishes_about_pods(request):
        return False
    if not fleet.apart:
        return True
    neighbours = podaffinity.prepare(fleet, request)
    return neighbours is None or not neighbours.kept_apart


class _Desk:
    """The board of one fleet, with the rankings of the policies that were asked for lately."""

    def __init__(self, fleet: Fleet) -> None:
        self._board = Board(fleet)
        self._rankings: dict[Policy, Ranking] = {}

    def ranking(self, policy: Policy) -> Ranking:
        ranking = self._rankings.pop(policy, None) or Ranking(self._board, policy)
        if len(self._rankings) >= _MOST_RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        self._rankings[policy] = ranking
        return ranking


def _ranking(fleet: Fleet, policy: Policy) -> Ranking:
    if not isinstance(fleet.desk, _Desk):
        fleet.desk = _Desk(fleet)
    return fleet.desk.ranking(policy)


def _plain_seat(fleet: Fleet, request: Request, policy: Policy, held: tuple[SlicePlacement, ...]) -> Seat | None:
    home = _home(fleet, held)
    checks = Checks(fleet, request)
    wish = preference(fleet, request)
    best: tuple[int, int, Seat] | None = None
    for node in fleet:
        # A pod that holds slices already was let in once, and can only go where they are.
        possible = node.name == home if held else checks.against(node) is None
        option = seat(node, request, policy, held) if possible else None
        if option is None:
            continue
        rank = (-wish.of(node), option.price)
        if best is None or rank < best[:2]:
            best = (*rank, option)
    return best[2] if best else None


def _home(fleet: Fleet, held: tuple[SlicePlacement, ...]) -> str:
    """The node of slices that a pod holds already; empty if it holds none."""
    return fleet.gpu_nodes.get(held[0].gpu, "?") if held else ""
