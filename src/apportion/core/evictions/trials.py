"""Trying out what would be if pods were gone: on the fleet itself, taken back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from apportion.core.evictions import reservation_pods
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState


@contextmanager
def trial(fleet: Fleet) -> Iterator[None]:
    mark = fleet.checkpoint()
    try:
        yield
    finally:
        fleet.rollback(mark)


def clear(fleet: Fleet, node: NodeState) -> None:
    """What is terminating there will be gone, and reservation pods that nobody needs then."""
    for uid in reservation_pods.leaving(fleet, node):
        fleet.take_away(uid)
