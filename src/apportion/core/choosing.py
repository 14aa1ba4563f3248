"""The best place in the fleet for one pod.

Two ways to the same answer. The plain one asks every node every question. The fast one keeps a row of prices
per class of request and works out anew only what changed (see `ranking`); pods whose rules look at other
pods, ports or volumes go the plain way.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

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


def best_seat(fleet: Fleet, request: Request, policy: Policy, *, plain: bool = False) -> Seat | Reasons:
    """The best place; the reasons of all nodes if there is none."""
    policy.prepare(fleet)
    held = held_slices(fleet, request)
    if held is None:
        return {node.name: Reason(Code.LEFTOVER_CLAIMS) for node in fleet}
    if held or plain or not _alone(fleet, request):
        return _plain_seat(fleet, request, policy, held)
    return _ranking(fleet, policy).best(request) or reasons_against(fleet, request)


def reasons_against(fleet: Fleet, request: Request) -> Reasons:
    """Why each node cannot take the pod; nodes that can are left out."""
    checks = Checks(fleet, request)
    return {node.name: reason for node in fleet if (reason := checks.against(node))}


def _alone(fleet: Fleet, request: Request) -> bool:
    """True if a node's answer depends on nothing but that node: no pods elsewhere, ports or volumes matter."""
    rules = request.rules
    if rules.about_pods or rules.ports or rules.claims or wishes_about_pods(request):
        return False
    if not fleet.apart:
        return True
    neighbours = podaffinity.prepare(fleet, request)
    return neighbours is None or not neighbours.kept_apart


_boards: WeakKeyDictionary[Fleet, tuple[Board, WeakKeyDictionary[Policy, Ranking]]] = WeakKeyDictionary()


def _ranking(fleet: Fleet, policy: Policy) -> Ranking:
    known = _boards.get(fleet)
    if known is None:
        known = _boards[fleet] = (Board(fleet), WeakKeyDictionary())
    board, rankings = known
    ranking = rankings.get(policy)
    if ranking is None:
        ranking = rankings[policy] = Ranking(board, policy)
    return ranking


def _plain_seat(fleet: Fleet, request: Request, policy: Policy, held: tuple[SlicePlacement, ...]) -> Seat | Reasons:
    home = fleet.gpu_nodes.get(held[0].gpu) if held else None
    checks = Checks(fleet, request)
    wish = preference(fleet, request)
    best: tuple[int, int, Seat] | None = None
    reasons: Reasons = {}
    for node in fleet:
        reason = checks.against(node) if not held else _tied(node.name, home)
        option = seat(node, request, policy, held) if reason is None else None
        if option is None:
            reasons[node.name] = reason or Reason(Code.NO_PLACE, request.slices[0].profile if request.slices else "")
            continue
        rank = (-wish.of(node), option.price)
        if best is None or rank < best[:2]:
            best = (*rank, option)
    return best[2] if best else reasons


def _tied(node: str, home: str | None) -> Reason | None:
    """A pod that holds slices already can only go where they are."""
    return None if node == home else Reason(Code.WRONG_NODE, home or "")
