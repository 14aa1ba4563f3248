"""The objects of a cluster, and informers that deliver their changes to views.

Informers of different kinds run independently of each other, so each view gets the kinds in an order of its own;
changes of one object arrive in order.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.custom_resources.kai_config import Config
from apportion.apis.custom_resources.pod_groups import PodGroup
from apportion.apis.custom_resources.queues import Queue
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.priorities import PriorityClass
from apportion.apis.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from apportion.view.view import View

Json = dict[str, Any]

NODES, REPORTS, CLAIMS, PODS, NAMESPACES = "nodes", "reports", "claims", "pods", "namespaces"
VOLUMES, VOLUME_CLAIMS, CLASSES = "volumes", "volume claims", "classes"
BIND_REQUESTS, CONFIGS = "bind requests", "configs"
QUEUES, POD_GROUPS, PRIORITIES, OWNERS = "queues", "pod groups", "priority classes", "owners"
TYPES: dict[str, type[Any]] = {
    NODES: Node,
    REPORTS: NodeAccelerator,
    CLAIMS: AllocationClaim,
    PODS: Pod,
    NAMESPACES: Bare,
    VOLUMES: PersistentVolume,
    VOLUME_CLAIMS: PersistentVolumeClaim,
    CLASSES: StorageClass,
    QUEUES: Queue,
    POD_GROUPS: PodGroup,
    PRIORITIES: PriorityClass,
    OWNERS: dict,
    BIND_REQUESTS: BindRequest,
    CONFIGS: Config,
}


class Cluster:
    """The objects as a server has them, and everybody who follows them."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Json]] = {kind: {} for kind in TYPES}
        self.followers: list[Follower] = []

    def all(self, kind: str) -> dict[str, Json]:
        return self._objects[kind]

    def put(self, kind: str, obj: Json) -> None:
        key = key_of(obj)
        old = self._objects[kind].get(key)
        self._objects[kind][key] = obj
        self._tell(kind, old, obj)

    def change(self, kind: str, key: str, edit: Callable[[Json], None]) -> None:
        obj = copy.deepcopy(self._objects[kind][key])
        edit(obj)
        self.put(kind, obj)

    def remove(self, kind: str, key: str) -> None:
        old = self._objects[kind].pop(key, None)
        if old is not None:
            self._tell(kind, old, None)

    def _tell(self, kind: str, old: Json | None, new: Json | None) -> None:
        for follower in self.followers:
            follower.hear(kind, old, new)


class Follower:
    """Informers in miniature, with a view that they feed."""

    def __init__(self, cluster: Cluster, view: View, dice: random.Random) -> None:
        self.view = view
        self._dice = dice
        self._queues: dict[str, deque[tuple[Any, Any]]] = {kind: deque() for kind in TYPES}
        for kind in TYPES:
            for obj in cluster.all(kind).values():
                self.hear(kind, None, obj)
        cluster.followers.append(self)

    def hear(self, kind: str, old: Json | None, new: Json | None) -> None:
        self._queues[kind].append((_typed(kind, old), _typed(kind, new)))

    def catch_up(self, look: Callable[[View], None] = lambda _: None) -> None:
        """Deliver everything; `look` at the view after each change."""
        while waiting := [kind for kind, queue in self._queues.items() if queue]:
            kind = self._dice.choice(waiting)
            feed(self.view, kind, *self._queues[kind].popleft())
            look(self.view)


def feed(view: View, kind: str, old: Any, new: Any) -> None:
    listeners: dict[str, Callable[[Any, Any], None]] = {
        NODES: view.nodes.changed,
        REPORTS: view.accelerators.changed,
        CLAIMS: view.claims.changed,
        PODS: view.pods.changed,
        NAMESPACES: view.namespaces.changed,
        QUEUES: view.queues.changed,
        POD_GROUPS: view.group_objects.pod_group_changed,
        PRIORITIES: view.group_objects.priority_class_changed,
        OWNERS: view.group_objects.owner_changed,
        BIND_REQUESTS: view.shares.bind_request_changed,
        CONFIGS: view.sharing_switch.changed,
    }
    if view.volumes is not None:
        listeners |= {
            VOLUMES: view.volumes.volume_changed,
            VOLUME_CLAIMS: view.volumes.volume_claim_changed,
            CLASSES: view.volumes.storage_class_changed,
        }
    if kind in listeners:
        listeners[kind](old, new)


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def _typed(kind: str, obj: Json | None) -> Any:
    return msgspec.convert(obj, TYPES[kind], strict=False) if obj is not None else None
