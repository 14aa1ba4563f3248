"""The view of one cluster: its fleet, fed by one feeder per kind of object, and what happened to it."""

from __future__ import annotations

from collections.abc import Callable

from apportion.apis.identities import NodeName
from apportion.apis.installation import Installation
from apportion.apis.request import DEFAULT_QUEUE
from apportion.cluster import clock
from apportion.core.catalog import Catalog
from apportion.core.fleet import Fleet
from apportion.core.queues.tree import FREE, Queue, QueueTree
from apportion.view.accelerators import Accelerators
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog
from apportion.view.claims import Claims
from apportion.view.namespaces import Namespaces
from apportion.view.nodes import Nodes
from apportion.view.pods import Pods
from apportion.view.volumes import Volumes
from apportion.view.waiting import WaitingPods


class View:
    """Tell it of objects by `view.KIND.changed(old, new)`, in any order; decide on `view.fleet`.

    `volumes` False: volumes are not followed, and do not affect decisions. `reservation_namespace` is that of the
    installation.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        *,
        reservation_namespace: str = Installation.reservation_namespace,
        volumes: bool = True,
        now: Callable[[], float] = clock.elapsed,
    ) -> None:
        self.fleet = Fleet(catalog or Catalog.shipped(), reservation_namespace=reservation_namespace)
        self.fleet.accounts.set_tree(QueueTree((Queue(DEFAULT_QUEUE, gpu=FREE),)))
        self.fleet.sharing = False  # pods with a share of a GPU cannot be bound yet
        self.changes = ChangeLog()
        self.waiting = WaitingPods()
        self.namespaces = Namespaces(self.fleet, self.changes)
        self.assumptions = Assumptions(self.fleet, self.changes, now)
        self.volumes = Volumes(self.fleet, self.changes, self.assumptions) if volumes else None
        self.accelerators = Accelerators(self.fleet, self.changes)
        self.nodes = Nodes(self.fleet, self.changes, self.accelerators)
        self.claims = Claims(self.fleet, self.changes, self.assumptions)
        self.pods = Pods(self.fleet, self.changes, self.waiting, self.accelerators, self.assumptions)

    def ready(self, node: NodeName) -> bool:
        """The agent of this node makes slices now."""
        state = self.fleet.nodes.get(node)
        return state is not None and state.ready
