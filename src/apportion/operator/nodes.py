"""Nodes that cannot serve and will not by themselves: what their agents say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apportion.apis import accelerators
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.meta import condition

# Nothing is wrong: it passes, or the pods of the DaemonSet say it better.
_PASSING = ("Starting", "NotRegistered", "AgentStopped", "Waiting")


@dataclass(frozen=True)
class Trouble:
    """Why one node takes no slices."""

    node: str
    reason: str
    message: str


def troubles(found: Iterable[NodeAccelerator]) -> list[Trouble]:
    listed = []
    for entry in sorted(found, key=lambda entry: entry.metadata.name):
        ready = condition(entry.status.conditions, accelerators.READY)
        if ready is not None and ready.status != "True" and ready.reason not in _PASSING:
            listed.append(Trouble(entry.metadata.name, ready.reason, ready.message))
    return listed
