"""A cluster that only decides: pending groups take turns, evicted pods end at once and are made anew by their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apportion.apis.identities import PodUID
from apportion.apis.request import Request
from apportion.core import gangs, group_decision, group_turns
from apportion.core.evictions import reservation_pods, room
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import Evict
from apportion.core.policies import Policy
from apportion.core.queues import shares, totals
from apportion.core.queues.demand import Demand
from apportion.core.queues.turns import Turns
from apportion.core.refusals import Refusal


@dataclass
class Cycle:
    """What happened in one."""

    placed: list[str]
    evicted: list[str]

    def __bool__(self) -> bool:
        return bool(self.placed or self.evicted)


class Simulation:
    def __init__(
        self,
        fleet: Fleet,
        pending: Mapping[PodUID, Request],
        policy: Policy,
        *,
        plain: bool = False,
        consolidation: Consolidation = Consolidation.GPUS,
    ) -> None:
        self.fleet = fleet
        self.pending = dict(pending)
        self.shares: shares.Shares = {}
        self.refused: dict[str, Refusal] = {}
        self.now = 0  # seconds
        self._policy, self._plain, self._consolidation = policy, plain, consolidation

    def cycle(self) -> Cycle:
        done = Cycle([], [])
        self._end_evicted()
        total = totals.total(self.fleet)
        self.shares = shares.compute(self.fleet.accounts.tree, total, self._demand().of_queues())
        waiting = self._groups()
        self.refused = {}
        turns: Turns[Group] = Turns(self.fleet.accounts, self.shares, total)
        for uids in waiting.values():
            self._add_turn(turns, uids)
        without_place: list[Group] = []
        while (turn := turns.next()) is not None:
            group = turn.group
            outcome = group_turns.stopped(self.fleet, turn) or group_decision.decide(
                self.fleet, group, self._policy, plain=self._plain, explained=False
            )
            if isinstance(outcome, Refusal):
                self.refused[group.key] = outcome
                if outcome.code in room.CAN_HELP:
                    without_place.append(group)
                continue
            for operation in outcome.operations:
                operation.confirm(self.fleet)
            for uid in group.uids:
                done.placed.append(self.pending.pop(uid).name)
                waiting[group.key].remove(uid)
            turns.changed(turn.queue)
            self._add_turn(turns, waiting[group.key])
        self._make_room(without_place, done)
        return done

    def _make_room(self, without_place: list[Group], done: Cycle) -> None:
        running = RunningGroups(self.fleet, self.now) if without_place else None
        for group in without_place:
            assert running is not None
            statement = room.make_room(self.fleet, group, self._policy, self.shares, running, self._consolidation)
            if statement is not None:
                done.evicted += [each.request.name for each in statement.operations if isinstance(each, Evict)]

    def _add_turn(self, turns: Turns[Group], uids: list[PodUID]) -> None:
        if not uids:
            return
        pods = sorted((self.pending[uid] for uid in uids), key=gangs.age)
        turn = group_turns.next_turn(self.fleet, pods)
        if isinstance(turn, Refusal):
            self.refused[pods[0].group_key] = turn
        else:
            turns.add(turn)

    def _groups(self) -> dict[str, list[PodUID]]:
        found: dict[str, list[PodUID]] = {}
        for uid, request in self.pending.items():
            found.setdefault(request.group_key, []).append(uid)
        return found

    def _demand(self) -> Demand:
        demand = Demand(self.fleet)
        for request in self.pending.values():
            demand.add(request)
        return demand

    def _end_evicted(self) -> None:
        fleet = self.fleet
        for name in {fleet.pod_nodes[uid]: None for uid in sorted(fleet.releasing)}:
            node = fleet.nodes[name]
            for uid in reservation_pods.leaving(fleet, node):
                request = node.pods[uid]
                fleet.take_away(uid)
                if request.owner is not None:
                    self.pending[uid] = request
