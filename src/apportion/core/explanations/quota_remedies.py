"""Quotas and limits of queues that would admit a group: by letting it pass, or by letting it reclaim room.

Quotas are raised to what the queue uses together with the group, so that it is not reclaimed from again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from apportion.apis import names
from apportion.apis.identities import QueueName
from apportion.apis.request import Request
from apportion.apis.shares import LEAST_MILLI, Share, decimal
from apportion.core import group_turns
from apportion.core.evictions.rules import Reclaim, Taker
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.evictions.search import Search
from apportion.core.explanations import explanation, remedies
from apportion.core.explanations.node_reasons import NodeReasons
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.node import MILLI
from apportion.core.policies import Policy
from apportion.core.queues import gates, raises, shares
from apportion.core.queues.accounts import Accounts
from apportion.core.queues.amounts import RESOURCES, Amounts
from apportion.core.queues.gates import Gate
from apportion.core.queues.raises import Raise
from apportion.core.queues.tree import QueueTree
from apportion.core.refusals import Remedy

MOST_PODS = 5000  # running pods up to which a reclaim is tried out: it is not divided into steps


def passing(fleet: Fleet, group: Group) -> tuple[Raise, ...]:
    """What lets the group pass all gates; empty if it passes."""
    first = group.members[0]
    need = group_turns.still_needed(fleet, group)
    return raises.needed(fleet.accounts, first.queue, need, fixed=not first.preemptible)


def reclaiming(
    fleet: Fleet,
    group: Group,
    policy: Policy,
    running: Callable[[], RunningGroups],
    total: Amounts,
    demand: Mapping[QueueName, Amounts],
) -> Generator[None, None, Remedy | None]:
    """The quotas, of as few queues upwards as possible, with which room is reclaimed for the group."""
    accounts, queue = fleet.accounts, group.members[0].queue
    tree = accounts.tree
    if len(fleet.pod_nodes) > MOST_PODS or tree.problem(queue) is not None:
        return None
    need = group_turns.still_needed(fleet, group)
    path, tried = tree.path(queue), None
    for length in range(1, len(path) + 1):
        raised = tuple(_quotas(accounts, path[:length], need))
        if not raised or raised == tried:
            continue
        tried = raised
        yield
        with assumed(accounts, raises.applied(tree, raised)):
            if _reclaims(fleet, group, policy, running(), shares.compute(accounts.tree, total, demand)):
                return Remedy(remedies.QUOTA, raises=raised)
    return None


def smaller(fleet: Fleet, request: Request, policy: Policy) -> Generator[None, None, Remedy | None]:
    """Less of a GPU, with which the pod passes all gates and has a place; the most of these."""
    survey = NodeReasons(fleet, request, policy)
    for remedy in _smaller(survey):
        yield
        if remedy is None:
            continue
        changed = remedies.apply(fleet, request, remedy)
        if passing(fleet, Group.of(changed, key=request.group_key)):
            continue
        if (yield from explanation.fits_anywhere(survey, changed)):
            return remedy
    return None


def _smaller(survey: NodeReasons) -> Iterator[Remedy | None]:
    request, fleet = survey.request, survey.fleet
    left = _left(fleet, request)
    share = request.share
    if request.whole_gpus:
        if 0 < left // MILLI < request.whole_gpus:
            yield Remedy(remedies.SMALLER, str(request.whole_gpus), str(left // MILLI), field=names.NVIDIA_GPU)
    elif share is not None:
        yield from _smaller_share(fleet, share, left // share.devices)
    elif request.slices:
        yield from explanation.smaller_requests(survey)


def _smaller_share(fleet: Fleet, share: Share, left: int) -> Iterator[Remedy]:
    """`left` milli-GPU for each of its GPUs."""
    if share.milli is not None:
        if LEAST_MILLI <= left < share.milli:
            yield Remedy(remedies.SMALLER, decimal(share.milli), decimal(left), field=names.GPU_FRACTION)
        return
    assert share.memory_mib is not None
    sizes = {gpu.memory_mib for node in fleet for gpu in node.shareable() if gpu.facts.measured}
    for mib in sorted({left * size // MILLI for size in sizes}, reverse=True):
        if 0 < mib < share.memory_mib:
            yield Remedy(remedies.SMALLER, str(share.memory_mib), str(mib), field=names.GPU_SHARE_MEMORY)


def _left(fleet: Fleet, request: Request) -> int:
    """Milli-GPU that the queues of the pod still let pass."""
    accounts, fixed = fleet.accounts, not request.preemptible
    left = []
    for name in accounts.tree.path(request.queue):
        queue = accounts.tree.queues.get(name)
        if queue is not None and queue.gpu.limit >= 0:
            left.append(queue.gpu.limit - accounts.used(name).gpu)
        if queue is not None and fixed and queue.gpu.quota >= 0:
            left.append(queue.gpu.quota - accounts.fixed(name).gpu)
    return min(left, default=0)


def _quotas(accounts: Accounts, path: Sequence[QueueName], need: Amounts) -> Iterator[Raise]:
    for name in path:
        used = accounts.used(name)
        for number, allowance in enumerate(accounts.tree.queues[name].allowances):
            if need[number] > 0 and 0 <= allowance.quota < used[number] + need[number]:
                yield Raise(name, Gate.QUOTA, RESOURCES[number], allowance.quota, used[number] + need[number])


def _reclaims(fleet: Fleet, group: Group, policy: Policy, running: RunningGroups, entitled: shares.Shares) -> bool:
    accounts, queue = fleet.accounts, group.members[0].queue
    need = group_turns.needed(fleet, group.members)
    taker = Taker(group.key, queue, group.priority, need)
    rules = Reclaim(accounts, entitled, taker, running)
    if rules.hopeless or gates.against(accounts, queue, need, fixed=not group.members[0].preemptible) is not None:
        return False
    running.options.clear()  # what was found out with other quotas
    try:
        return Search(fleet, policy, group.members, taker, running, rules).best() is not None
    finally:
        running.options.clear()


@contextmanager
def assumed(accounts: Accounts, tree: QueueTree) -> Iterator[None]:
    """A block in which quotas are other ones. The queues are the same, so what they use does not change."""
    before, accounts.tree = accounts.tree, tree
    try:
        yield
    finally:
        accounts.tree = before
