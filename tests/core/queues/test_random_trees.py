"""Random trees of queues: the fair shares are those of the definition, and have its properties."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from apportion.core.queues.fair_shares import QueueDemand, divide, fair_shares
from tests.core.queues import oracle, trees

SOAK = os.environ.get("APPORTION_SOAK") == "1"
TREES = 10_000 if SOAK else 500

Tree = tuple[int, list[QueueDemand]]


def random_trees() -> Iterator[tuple[str, Tree]]:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    for number in range(TREES):
        yield f"tree {seed + number}", trees.tree(random.Random(seed + number))


@pytest.mark.soak
def test_q03_fair_shares_are_those_of_the_definition() -> None:
    met: Counter[str] = Counter()
    for name, (total, queues) in random_trees():
        shares = fair_shares(total, queues)
        assert shares == oracle.fair_shares(total, queues), name
        met.update(_features(total, queues, shares))
    rare = {what: met[what] for what in FEATURES if met[what] < TREES // 50}
    assert not rare, "the trees hardly contain these"


FEATURES = ("deep", "oversubscribed", "limit below quota", "quota above total", "weight 0", "same time", "contended")


def _features(total: int, queues: Sequence[QueueDemand], shares: dict[str, int]) -> Iterator[str]:
    parents = {queue.name: queue.parent for queue in queues}
    if any(_depth(queue.name, parents) == trees.DEEPEST for queue in queues):
        yield "deep"
    if sum(shares[queue.name] for queue in queues if queue.parent is None) > total:
        yield "oversubscribed"
    if any(-1 < queue.limit < queue.quota for queue in queues):
        yield "limit below quota"
    if any(queue.quota > total for queue in queues):
        yield "quota above total"
    if any(queue.weight == 0 for queue in queues):
        yield "weight 0"
    if any(times > 1 for times in Counter(queue.created for queue in queues).values()):
        yield "same time"
    if any(max(queue.quota, 0) < shares[queue.name] < queue.request for queue in queues):
        yield "contended"


def _depth(name: str, parents: dict[str, str | None]) -> int:
    parent = parents[name]
    return 1 if parent is None else 1 + _depth(parent, parents)


@pytest.mark.soak
def test_q03_the_order_of_the_queues_does_not_matter() -> None:
    for name, (total, queues) in random_trees():
        shuffled = random.Random(name).sample(queues, len(queues))
        assert fair_shares(total, shuffled) == fair_shares(total, queues), name


@pytest.mark.soak
def test_q03_nothing_is_given_twice_or_kept_back() -> None:
    """Where quotas fit, siblings get the total at most, and all of it if somebody with a weight could use it."""
    for name, (total, queues) in random_trees():
        siblings = [queue for queue in queues if queue.parent is None]
        shares = divide(total, siblings)
        for queue in siblings:
            assert _guaranteed(queue, total) <= shares[queue.name] <= queue.requestable, name
        if sum(_guaranteed(queue, total) for queue in siblings) > total:
            assert all(shares[queue.name] == _guaranteed(queue, total) for queue in siblings), name
            continue
        assert sum(shares.values()) <= total, name
        if any(queue.weight > 0 and shares[queue.name] < queue.requestable for queue in siblings):
            assert sum(shares.values()) == total, name


def _guaranteed(queue: QueueDemand, total: int) -> int:
    return min(total if queue.quota == -1 else queue.quota, queue.requestable)


@pytest.mark.soak
def test_q03_queues_that_request_their_fair_share_get_it_again() -> None:
    for name, (total, queues) in random_trees():
        siblings = [queue for queue in queues if queue.parent is None]
        shares = divide(total, siblings)
        content = [msgspec.structs.replace(queue, request=shares[queue.name]) for queue in siblings]
        assert divide(total, content) == shares, name
