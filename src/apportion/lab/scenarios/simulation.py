"""A cluster that only decides: pending groups take turns, evicted pods end at once and are made anew by their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apportion.apis.identities import PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import gangs, group_decision
from apportion.core.evictions import room
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang, Group
from apportion.core.operations import Evict
from apportion.core.policies import Policy
from apportion.core.queues import gates, shares, totals
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.turns import Turn, Turns
from apportion.core.statement import Statement


@dataclass
class Cycle:
    """What happened in one."""

    placed: list[str]
    evicted: list[str]

    def __bool__(self) -> bool:
        return bool(self.placed or self.evicted)


class Simulation:
    def __init__(self, fleet: Fleet, pending: Mapping[PodUID, Request], policy: Policy, *, plain: bool = False) -> None:
        self.fleet = fleet
        self.pending = dict(pending)
        self.shares: shares.Shares = {}
        self._policy, self._plain = policy, plain

    def cycle(self) -> Cycle:
        done = Cycle([], [])
        self._end_evicted()
        total = totals.total(self.fleet)
        self.shares = shares.compute(self.fleet.accounts.tree, total, self._demand())
        waiting = self._groups()
        turns = Turns(self.fleet.accounts, self.shares, total)
        for key in waiting:
            self._add_turn(turns, key, waiting)
        failed: list[Group] = []
        while (turn := turns.next()) is not None:
            group: Group = turn.group
            if not self._gates_open(group):
                failed.append(group)
                continue
            outcome = group_decision.decide(self.fleet, group, self._policy, plain=self._plain, explained=False)
            if not isinstance(outcome, Statement):
                failed.append(group)
                continue
            for uid in group.uids:
                done.placed.append(self.pending.pop(uid).name)
                waiting[group.key].remove(uid)
            turns.changed(turn.queue)
            self._add_turn(turns, group.key, waiting)
        self._make_room(failed, done)
        return done

    def _make_room(self, failed: list[Group], done: Cycle) -> None:
        running = RunningGroups(self.fleet)
        for group in failed:
            if self.fleet.reserves_for(group.key) or self.fleet.accounts.tree.problem(group.members[0].queue):
                continue
            statement = room.make_room(self.fleet, group, self._policy, self.shares, running)
            if statement is not None:
                done.evicted += [each.request.name for each in statement.operations if isinstance(each, Evict)]
                running = RunningGroups(self.fleet)

    def _add_turn(self, turns: Turns[Group], key: str, waiting: dict[str, list[PodUID]]) -> None:
        pods = [self.pending[uid] for uid in waiting[key]]
        if not pods:
            return
        gang = self.fleet.gang_of(pods[0])
        chosen = gangs.next_members(self.fleet, gang, pods)
        if chosen.members:
            group = Group(key, chosen.members, len(chosen.members))
            order = (-group.priority, chosen.state, gang.created, key)
            turns.add(Turn(pods[0].queue, order, room.needed(self.fleet, chosen.members), group))

    def _gates_open(self, group: Group) -> bool:
        first = group.members[0]
        if self.fleet.accounts.tree.problem(first.queue) is not None:
            return False
        if self.fleet.reserves_for(group.key):
            return True
        need = room.needed(self.fleet, group.members)
        return gates.against(self.fleet.accounts, first.queue, need, fixed=not first.preemptible) is None

    def _groups(self) -> dict[str, list[PodUID]]:
        found: dict[str, list[PodUID]] = {}
        for uid, request in self.pending.items():
            found.setdefault(request.group_key, []).append(uid)
        return found

    def _demand(self) -> dict[QueueName, Amounts]:
        accounts = self.fleet.accounts
        leaves = [name for name in accounts.tree.queues if accounts.tree.problem(name) is None]
        demand = {name: accounts.used(name) for name in leaves}
        for request in self.pending.values():
            if not self.fleet.reserves_for(request.group_key):
                demand[request.queue] = demand.get(request.queue, NOTHING).plus(room.wanted(self.fleet, request))
        return demand

    def _end_evicted(self) -> None:
        for uid in list(self.fleet.releasing):
            request = self.fleet.nodes[self.fleet.pod_nodes[uid]].pods[uid]
            for held in self.fleet.slices_of(uid):
                self.fleet.remove_slice(held.key)
            for share in self.fleet.shares_of(uid):
                self.fleet.remove_share(share.key)
            self.fleet.remove_pod(uid)
            if request.owner is not None:
                self.pending[uid] = request
