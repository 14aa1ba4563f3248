"""The tree of queues with what each is entitled to, holds and waits for, as plain data for display."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from apportion.apis import names
from apportion.apis.identities import QueueName
from apportion.core.evictions.nominations import reservation_key
from apportion.core.explanations import queue_conditions
from apportion.core.explanations.queue_conditions import Condition
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.tree import Problem, Queue
from apportion.view.view import View


@dataclass(frozen=True)
class ShownQueue:
    """One queue; `depth` in the tree from 0. Amounts include those of child queues. `conditions` are those that are
    true."""

    queue: Queue
    depth: int
    share: Amounts
    used: Amounts
    fixed: Amounts
    demand: Amounts
    running: int
    waiting: int
    conditions: tuple[Condition, ...] = ()

    @property
    def name(self) -> QueueName:
        return self.queue.name


@dataclass(frozen=True)
class QueueScene:
    """`total` is what the queues share; `invalid` are queues that cannot be read, with what is wrong; `lost` are pods
    that name a queue which does not exist, by that name."""

    total: Amounts
    queues: tuple[ShownQueue, ...]
    lost: dict[str, int]
    invalid: dict[str, str] = field(default_factory=dict)


def entitlements(view: View) -> Entitlements:
    """What queues are entitled to, by what runs and what waits to be placed: no gated pods, and none with problems."""
    found = Entitlements(view.fleet)
    for each in view.unplaced():
        request, problem = each.reading
        ours = request is not None and request.scheduler_name in names.OUR_SCHEDULERS
        if not ours or request is None or problem is not None or request.gated or each.held:
            continue
        if reservation_key(request, request.group_key) not in view.fleet.reservations:  # that is charged already
            found.demand.add(request)
    found.update()
    return found


def queue_scene(view: View) -> QueueScene:
    shown = _Shown(view)
    tree = view.fleet.accounts.tree
    circular = [name for name in tree.queues if tree.broken(name) is Problem.CYCLE]
    roots = [name for name, queue in tree.queues.items() if queue.parent not in tree]
    queues = [each for name in roots for each in shown.below(name, 0)]
    queues += [shown.one(name, 0, ()) for name in circular]
    lost: dict[str, int] = {
        name: count for name, count in sorted(shown.waiting.items()) if name not in tree and name not in tree.invalid
    }
    invalid: dict[str, str] = dict(sorted(tree.invalid.items()))
    return QueueScene(shown.entitled.total, tuple(queues), lost, invalid)


class _Shown:
    """Queues with their numbers."""

    def __init__(self, view: View) -> None:
        self._accounts = view.fleet.accounts
        self.entitled = entitlements(view)
        self._demand = self.entitled.demand.of_queues()
        ours = names.OUR_SCHEDULERS
        requests = (each.reading.request for each in view.unplaced())
        self.waiting = Counter(each.queue for each in requests if each is not None and each.scheduler_name in ours)
        placed = (node.pods[uid] for node in view.fleet for uid in node.pods if uid not in view.fleet.releasing)
        self._running = Counter(pod.queue for pod in placed if pod.scheduler_name in ours)

    def below(self, name: QueueName, depth: int) -> Iterator[ShownQueue]:
        """The queue, and all below it."""
        others = [each for child in self._accounts.tree.children(name) for each in self.below(child, depth + 1)]
        yield self.one(name, depth, [each for each in others if each.depth == depth + 1])
        yield from others

    def one(self, name: QueueName, depth: int, children: Sequence[ShownQueue]) -> ShownQueue:
        accounts, shares = self._accounts, self.entitled.shares
        demand = self._demand.get(name, NOTHING)
        for child in children:
            demand = demand.plus(child.demand)
        return ShownQueue(
            queue=accounts.tree.queues[name],
            depth=depth,
            share=shares.get(name, NOTHING),
            used=accounts.used(name),
            fixed=accounts.fixed(name),
            demand=demand,
            running=self._running[name] + sum(child.running for child in children),
            waiting=self.waiting[name] + sum(child.waiting for child in children),
            conditions=tuple(queue_conditions.conditions(accounts, shares, self.entitled.total, name)),
        )
