"""The view of one cluster: its fleet, fed by one feeder per kind of object, and what happened to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.installation import Installation
from apportion.apis.owner_kinds import table
from apportion.apis.owner_kinds.table import OwnerKinds
from apportion.apis.pods import Pod
from apportion.cluster import clock
from apportion.core.catalog import Catalog
from apportion.core.fleet import Fleet
from apportion.view.accelerators import Accelerators
from apportion.view.assumptions import Assumptions
from apportion.view.budgets import Budgets
from apportion.view.change_log import ChangeLog
from apportion.view.claims import Claims
from apportion.view.groups.group_objects import GroupObjects
from apportion.view.groups.grouper_config import GrouperConfig
from apportion.view.groups.groups import Groups
from apportion.view.groups.owners import Owners
from apportion.view.namespaces import Namespaces
from apportion.view.nodes import Nodes
from apportion.view.pods import Pods
from apportion.view.queues import Queues
from apportion.view.sharing.shares import Shares
from apportion.view.sharing.switch import SharingSwitch
from apportion.view.volumes import Volumes
from apportion.view.waiting import WaitingPod, WaitingPods


class View:
    """Tell it of objects by `view.KIND.changed(old, new)`, in any order; decide on `view.fleet`.

    `volumes` False: volumes are not followed, and do not affect decisions. `reservation_namespace` is that of the
    installation. `owner_kinds` says how the pods of each kind of owner are grouped; a Config can add to it.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        *,
        reservation_namespace: str = Installation.reservation_namespace,
        volumes: bool = True,
        owner_kinds: OwnerKinds | None = None,
        now: Callable[[], float] = clock.elapsed,
    ) -> None:
        self.fleet = Fleet(catalog or Catalog.shipped(), reservation_namespace=reservation_namespace)
        self.changes = ChangeLog()
        self.waiting = WaitingPods()
        self.namespaces = Namespaces(self.fleet, self.changes)
        self.assumptions = Assumptions(self.fleet, self.changes, now)
        self.volumes = Volumes(self.fleet, self.changes, self.assumptions) if volumes else None
        self.accelerators = Accelerators(self.fleet, self.changes)
        self.sharing_switch = SharingSwitch(self.fleet, self.changes, self.accelerators)
        self.nodes = Nodes(self.fleet, self.changes, self.accelerators)
        self.claims = Claims(self.fleet, self.changes, self.accelerators, self.assumptions)
        pods: dict[PodUID, Pod] = {}
        self.queues = Queues(self.fleet, self.changes)
        self.budgets = self.fleet.budgets = Budgets(self.changes, pods, now)
        kinds = owner_kinds or table.shipped()
        self.groups = Groups(self.fleet, Owners(kinds, pods), now)
        self.shares = Shares(self.fleet, self.changes, self.waiting, self.accelerators, self.assumptions, pods)
        self.pods = Pods(
            self.fleet,
            self.changes,
            self.waiting,
            self.accelerators,
            self.assumptions,
            self.groups,
            self.shares,
            pods,
        )
        self.group_objects = GroupObjects(self.groups, self.pods)
        self.grouper_config = GrouperConfig(kinds, self.group_objects)

    def unplaced(self) -> Iterator[WaitingPod]:
        """Pods without a node for which none is chosen either: no decision counts that has still to be carried out."""
        return (each for each in self.waiting if each.pod.uid not in self.fleet.pod_nodes)

    def ready(self, node: NodeName) -> bool:
        """The agent of this node makes slices now."""
        state = self.fleet.nodes.get(node)
        return state is not None and state.ready
