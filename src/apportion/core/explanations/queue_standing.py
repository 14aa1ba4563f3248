"""Where the queue of a group without a place stands, and why no room is reclaimed for it. Worked out in steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator

from apportion.apis import names
from apportion.apis.identities import QueueName
from apportion.core import group_turns
from apportion.core.evictions.rules import Extent, Reclaim, Taker
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.queues.amounts import NOTHING, RESOURCES
from apportion.core.queues.shares import Shares
from apportion.core.queues.tree import QueueTree
from apportion.core.refusals import NoReclaim, Standing

_PODS_PER_STEP = 500


def standing(
    fleet: Fleet, group: Group, shares: Shares, running: Callable[[], RunningGroups]
) -> Generator[None, None, Standing | None]:
    """None if there are no other queues, or if the group asks for nothing that queues share."""
    accounts, name = fleet.accounts, group.members[0].queue
    tree = accounts.tree
    need = group_turns.still_needed(fleet, group)
    asked = [number for number, amount in enumerate(need) if amount > 0]
    if not asked or tree.problem(name) is not None or not _shared(tree):
        return None
    used, share = accounts.used(name), shares.get(name, NOTHING)
    exceeded = [number for number in asked if used[number] + need[number] > share[number]]
    number = (exceeded or asked)[0]
    above: tuple[QueueName, ...] = ()
    protected: tuple[tuple[str, int], ...] = ()
    if exceeded:
        why = NoReclaim.AT_SHARE
    else:
        rules = Reclaim(accounts, shares, Taker(group.key, name, group.priority, need), running())
        above = tuple(each for each in tree.queues if each != name and _takes_from(fleet, rules, each, number))
        counts, others = yield from _protected(fleet, rules, running(), above, number)
        protected = tuple((what, count) for what, count in counts.items() if count)
        why = NoReclaim.NOBODY_ABOVE if not above else NoReclaim.NO_ROOM if others else NoReclaim.PROTECTED
    return Standing(
        queue=name,
        resource=RESOURCES[number],
        need=need[number],
        used=used[number],
        share=share[number],
        quota=tree.queues[name].allowances[number].quota,
        reclaim=why,
        above=above,
        protected=protected,
    )


def _shared(tree: QueueTree) -> bool:
    """There is more than one queue that runs pods."""
    leaves = (name for name in tree.queues if tree.problem(name) is None)
    return next(leaves, None) is not None and next(leaves, None) is not None


def _takes_from(fleet: Fleet, rules: Reclaim, queue: QueueName, number: int) -> bool:
    accounts = fleet.accounts
    if accounts.tree.problem(queue) is not None or accounts.used(queue)[number] <= 0:
        return False
    return rules.takes_from(queue)


def _protected(
    fleet: Fleet, rules: Reclaim, running: RunningGroups, queues: Collection[QueueName], number: int
) -> Generator[None, None, tuple[dict[str, int], int]]:
    """Pods of these queues that must not be evicted, by what protects them; and how many others there are."""
    fixed = (yield from _fixed(fleet, queues, number)) if queues else 0
    young = under_budget = others = looked = 0
    for group in list(running):
        if group.queue not in queues:
            continue
        pods = [pod for pod in group.pods if pod.amounts[number] > 0]
        if rules.allows(group) is Extent.NOTHING:
            young += len(pods)
            continue
        others += len(pods)
        for pod in pods if running.budgets.exist else ():
            if not running.budgets.allow(each.uid for each in group.taken({pod.uid})):
                under_budget += 1
            looked += 1
            if looked % _PODS_PER_STEP == 0:
                yield
        looked += 1
        if looked % _PODS_PER_STEP == 0:
            yield
    counts = {
        "not preemptible": fixed,
        "under a disruption budget that allows no eviction": under_budget,
        "within their minimum runtime": young,
    }
    return counts, others - under_budget


def _fixed(fleet: Fleet, queues: Collection[QueueName], number: int) -> Generator[None, None, int]:
    """How many pods of these queues are not preemptible."""
    found = 0
    for looked, uid in enumerate(list(fleet.pod_nodes), 1):
        if looked % _PODS_PER_STEP == 0:
            yield
        node = fleet.pod_nodes.get(uid)
        if node is None:
            continue  # it ended meanwhile
        request = fleet.nodes[node].pods[uid]
        if request.preemptible or request.queue not in queues or request.scheduler_name not in names.OUR_SCHEDULERS:
            continue
        charge = fleet.accounts.charge(uid)
        found += charge is not None and charge.amounts[number] > 0
    return found
