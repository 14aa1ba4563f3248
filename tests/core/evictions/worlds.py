"""Fleets with queues, for tests of evictions: pods by a few words, and what is decided about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import group_decision, group_turns
from apportion.core.evictions import room
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Gang, Group
from apportion.core.operations import Evict, KeepPlaces, Reserve
from apportion.core.policies import Policy
from apportion.core.queues import shares, totals
from apportion.core.queues.amounts import NOTHING
from apportion.core.queues.tree import Allowance, Queue, QueueTree
from apportion.core.statement import Statement
from tests.builders.accelerators import A100
from tests.builders.fleets import add_node, fleet_of, node_facts
from tests.builders.pods import pod_request


class World:
    """One fleet with queues `quotas` (GPUs). Pods are named in the order of their age."""

    def __init__(self, nodes: Mapping[str, int], queues: Iterable[Queue], *, mig: bool = False) -> None:
        self.fleet = fleet_of()
        for name, gpus in nodes.items():
            add_node(self.fleet, node_facts(name), [(A100, mig)] * gpus)
        self.fleet.accounts.set_tree(QueueTree(queues))
        self.pending: dict[str, list[Request]] = {}
        self.policy = Policy("first-fit")
        self._age = 0

    def request(
        self, name: str, queue: str, *, group: str | None = None, owner: str | None = None, **ask: Any
    ) -> Request:
        priority = ask.pop("priority", 50)
        subgroup = ask.pop("subgroup", "")
        namespace = ask.pop("namespace", "default")
        self._age += 1
        return msgspec.structs.replace(
            pod_request(name, uid=f"uid-{name}", **ask),
            namespace=namespace,
            queue=QueueName(queue),
            group=group,
            subgroup=subgroup,
            owner=owner,
            priority=priority,
            priority_class="some",
            scheduler_name=names.KAI_SCHEDULER,
            created=f"2026-01-01T{self._age:08}",
        )

    def gang(self, key: str, minimum: int, **about: Any) -> None:
        self.fleet.set_gang(Gang(key, minimum, created=f"2026-01-01T{self._age:08}", **about))

    def run(self, request: Request, node: str = "") -> None:
        """It runs, wherever there is room (or on this node)."""
        asked = msgspec.structs.replace(request, node_name=NodeName(node)) if node else request
        outcome = group_decision.decide(self.fleet, Group.of(asked), self.policy)
        assert isinstance(outcome, Statement), outcome

    def wait(self, *members: Request) -> Group:
        self.pending[members[0].group_key] = list(members)
        return Group.of(*members, key=members[0].group_key)

    def shares(self) -> shares.Shares:
        accounts = self.fleet.accounts
        demand = {name: accounts.used(name) for name in accounts.tree.queues if not accounts.tree.children(name)}
        for members in self.pending.values():
            queue = members[0].queue
            demand[queue] = demand.get(queue, NOTHING).plus(group_turns.needed(self.fleet, members))
        return shares.compute(accounts.tree, totals.total(self.fleet), demand)

    def plan(
        self,
        group: Group,
        now: int = 0,
        running: RunningGroups | None = None,
        consolidation: Consolidation = Consolidation.GPUS,
    ) -> Statement | None:
        running = running or RunningGroups(self.fleet, now)
        return room.make_room(self.fleet, group, self.policy, self.shares(), running, consolidation)


def queue(name: str, quota: int = 0, *, limit: int = -1, parent: str = "", **about: Any) -> Queue:
    """Quota and limit in GPUs."""
    gpu = Allowance(quota if quota < 0 else 1000 * quota, limit if limit < 0 else 1000 * limit, about.pop("weight", 1))
    return Queue(QueueName(name), QueueName(parent), gpu=gpu, **about)


def evicted(statement: Statement | None) -> list[str]:
    """Names, sorted; who is moved is among them."""
    return sorted(each.request.name for each in evictions(statement))


def evictions(statement: Statement | None) -> list[Evict]:
    return [each for each in statement.operations if isinstance(each, Evict)] if statement is not None else []


def reserved(statement: Statement) -> list[Reserve]:
    return [each for each in statement.operations if isinstance(each, Reserve)]


def kept_places(statement: Statement) -> list[Reservation]:
    """For successors."""
    return [place for each in statement.operations if isinstance(each, KeepPlaces) for place in each.reservations]


def uid(name: str) -> PodUID:
    return PodUID(f"uid-{name}")


def pods_of(fleet: Fleet) -> list[Request]:
    return [fleet.nodes[node].pods[key] for key, node in fleet.pod_nodes.items()]
