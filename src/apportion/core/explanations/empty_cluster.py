"""Would a group have a place if nothing else ran? If not, no pod that ends can help."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from apportion.core import equivalence, group_decision, group_turns
from apportion.core.explanations.node_reasons import NODES_PER_STEP
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import FIRST_FIT, Policy
from apportion.core.queues import quantities, totals
from apportion.core.queues.accounts import FOREIGN
from apportion.core.queues.amounts import RESOURCES
from apportion.core.statement import Statement


def can_never(fleet: Fleet, group: Group, *, only_room: bool) -> Generator[None, None, str]:
    """Why the group can never be scheduled on these nodes, in words; empty if it can, or if that is not certain.

    `only_room`: nothing but the size of the nodes is against it. Other reasons, such as a taint, can be removed.
    """
    count = len(group.members)
    need = group_turns.needed(fleet, group.members)
    capacity = totals.total(fleet).plus(fleet.accounts.used(FOREIGN))
    for number, resource in enumerate(RESOURCES):
        if need[number] > capacity[number] and count > 1:
            asked, has = quantities.said(resource, need[number]), quantities.number(resource, capacity[number])
            return (
                f"The group can never be scheduled here: the {count} pods that start together request {asked}, "
                f"and the cluster has {has}."
            )
    if not only_room:
        return ""
    fits = yield from _count_that_fits(fleet, group)
    if fits == count:
        return ""
    if count == 1:
        return "The pod can never be scheduled on the nodes of this cluster, even if nothing else ran there."
    if fits and len({equivalence.node_class(member) for member in group.members}) > 1:
        return ""  # another order of its pods might do
    have = "1 of them has a place" if fits == 1 else f"{fits} of them have a place"
    return f"The group can never be scheduled here: {count} pods start together, and {have} even if nothing else runs."


def _count_that_fits(fleet: Fleet, group: Group) -> Generator[None, None, int]:
    """How many members have a place, one after the other, in the cluster without any pod."""
    empty = Fleet(fleet.catalog, reservation_namespace=fleet.reservation_namespace)
    empty.sharing, empty.storage = fleet.sharing, fleet.storage
    for name, labels in fleet.namespaces.items():
        empty.set_namespace(name, labels)
    for number, node in enumerate(list(fleet), 1):
        if node.facts is not None:
            empty.set_node(node.facts)
            empty.set_gpus(
                node.name, [replace(gpu.facts, takes_shares=True) for gpu in node.gpus.values()], ready=node.ready
            )
        if number % NODES_PER_STEP == 0:
            yield
    policy = Policy(FIRST_FIT)
    for number, member in enumerate(group.members):
        outcome = group_decision.decide(empty, Group.of(member), policy, explained=False, observed=False)
        if not isinstance(outcome, Statement):
            return number
        yield
    return len(group.members)
