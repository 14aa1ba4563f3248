"""The tree of queues with what each is entitled to, holds and waits for, as plain data for display."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from apportion.apis import names
from apportion.apis.identities import QueueName
from apportion.core.evictions.nominations import reservation_key
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.tree import Problem, Queue
from apportion.view.view import View

_PROBLEMS = {
    Problem.NO_PARENT: "its parent queue does not exist: create it, or change parentQueue",
    Problem.CYCLE: "it is its own ancestor: change parentQueue of one queue in the cycle",
}


@dataclass(frozen=True)
class ShownQueue:
    """One queue; `depth` in the tree from 0. Amounts include those of child queues."""

    queue: Queue
    depth: int
    share: Amounts
    used: Amounts
    fixed: Amounts
    demand: Amounts
    running: int
    waiting: int
    problem: str = ""

    @property
    def name(self) -> QueueName:
        return self.queue.name


@dataclass(frozen=True)
class QueueScene:
    """`total` is what the queues share; `lost` are pods that name a queue which does not exist, by that name."""

    total: Amounts
    queues: tuple[ShownQueue, ...]
    lost: dict[str, int]


def entitlements(view: View) -> Entitlements:
    """What queues are entitled to, by what runs and what waits to be placed: no gated pods, and none with problems."""
    found = Entitlements(view.fleet)
    for each in view.waiting:
        request, problem = each.reading
        ours = request is not None and request.scheduler_name in names.OUR_SCHEDULERS
        if not ours or request is None or problem is not None or request.gated or each.held:
            continue
        if reservation_key(request, request.group_key) not in view.fleet.reservations:  # that is charged already
            found.demand.add(request)
    found.update()
    return found


def queue_scene(view: View) -> QueueScene:
    fleet = view.fleet
    entitled = entitlements(view)
    waiting: Counter[QueueName] = Counter()
    for each in view.waiting:
        request = each.reading.request
        if request is not None and request.scheduler_name in names.OUR_SCHEDULERS:
            waiting[request.queue] += 1
    running = Counter(
        node.pods[uid].queue
        for node in fleet
        for uid in node.pods
        if node.pods[uid].scheduler_name in names.OUR_SCHEDULERS and uid not in fleet.releasing
    )
    tree = fleet.accounts.tree
    demand = entitled.demand.of_queues()

    def shown(name: QueueName, depth: int) -> Iterator[ShownQueue]:
        below = [each for child in tree.children(name) for each in shown(child, depth + 1)]
        own = [each for each in below if each.depth == depth + 1]
        asked = demand.get(name, NOTHING)
        for each in own:
            asked = asked.plus(each.demand)
        problem = tree.broken(name)
        yield ShownQueue(
            queue=tree.queues[name],
            depth=depth,
            share=entitled.shares.get(name, NOTHING),
            used=fleet.accounts.used(name),
            fixed=fleet.accounts.fixed(name),
            demand=asked,
            running=running[name] + sum(each.running for each in own),
            waiting=waiting[name] + sum(each.waiting for each in own),
            problem=_PROBLEMS[problem] if problem is not None else "",
        )
        yield from below

    roots = [name for name in tree.queues if tree.queues[name].parent not in tree or _in_cycle(view, name)]
    listed = tuple(each for name in roots for each in (shown(name, 0) if not _in_cycle(view, name) else ()))
    broken = tuple(
        ShownQueue(
            tree.queues[name],
            0,
            NOTHING,
            fleet.accounts.used(name),
            NOTHING,
            NOTHING,
            running[name],
            waiting[name],
            _PROBLEMS[Problem.CYCLE],
        )
        for name in tree.queues
        if _in_cycle(view, name)
    )
    lost: dict[str, int] = {name: count for name, count in sorted(waiting.items()) if name not in tree}
    return QueueScene(entitled.total, (*listed, *broken), lost)


def _in_cycle(view: View, name: QueueName) -> bool:
    return view.fleet.accounts.tree.broken(name) is Problem.CYCLE
