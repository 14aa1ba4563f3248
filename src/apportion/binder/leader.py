"""What a leader is made of: informers, and two queues, of BindRequests and of groups, that wake each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import groups_of
from apportion.binder import metrics
from apportion.binder.binding import Binding, Key
from apportion.binder.config_maps import ConfigMaps
from apportion.binder.device_memory import DeviceMemories
from apportion.binder.events import Reports
from apportion.binder.gpu_users import GpuUsers
from apportion.binder.group_labels import GroupLabels
from apportion.binder.informers import BY_GROUP, Informers
from apportion.binder.joining import Joining
from apportion.binder.leased_writes import LeasedWrites
from apportion.binder.patience import Patience
from apportion.binder.reservation_store import ReservationStore
from apportion.binder.reservations import Reservations
from apportion.binder.running_sharers import RunningSharers
from apportion.binder.settings import Settings
from apportion.binder.sharer_states import SharerStates
from apportion.binder.sharing_config import SharingConfig
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder
from apportion.cluster.lease import Election
from apportion.cluster.workqueue import WorkQueue

BINDING_WORKERS = 32
GROUP_WORKERS = 16


class Leader:
    """Made anew for every leadership: what it knows, it learns from lists of the server."""

    def __init__(self, client: Client, election: Election, settings: Settings, recorder: Recorder) -> None:
        installation = settings.installation
        self.informers = informers = Informers(client, installation)
        config = SharingConfig(informers, installation)
        writes = LeasedWrites(client, election.holds)
        store = ReservationStore(client, writes, installation, config)
        config_maps, labels = ConfigMaps(client, writes), GroupLabels(client, writes)
        running = RunningSharers(client, informers)
        patience = Patience(lambda: config.allocation_seconds)
        memories = DeviceMemories(informers, installation)
        reports = Reports(recorder)
        states = SharerStates(client, informers)
        self._binding = Binding(
            client,
            writes,
            informers,
            joining=Joining(informers, store, running, memories, states, GpuUsers(client, informers)),
            config_maps=config_maps,
            labels=labels,
            config=config,
            patience=patience,
            reports=reports,
        )
        self._reservations = Reservations(
            informers,
            store,
            running=running,
            states=states,
            labels=labels,
            patience=patience,
            reports=reports,
        )
        self._requests: WorkQueue[Key] = WorkQueue("bind requests")
        self._groups: WorkQueue[str] = WorkQueue("GPU reservations")
        metrics.RESERVATIONS.set(0)
        informers.requests.on_change(self._request_changed)
        informers.pods.on_change(self._pod_changed)

    async def run(self) -> None:
        """Until cancelled; the informers must have synced."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests.run(self._binding.reconcile, BINDING_WORKERS))
                group.create_task(self._groups.run(self._reservations.reconcile, GROUP_WORKERS))
        finally:
            self._requests.close()
            self._groups.close()

    def _request_changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        if new is not None:
            self._requests.add((new.metadata.namespace, new.metadata.name))
        if old is not None and (new is None or new.failed):
            self._add_groups(old.spec.selected_gpu_groups)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        groups = {group for pod in (old, new) if pod is not None for group in groups_of(pod.metadata)}
        self._add_groups(groups)
        if not self.informers.is_reservation(subject):
            return
        for group in groups:
            for request in self.informers.requests.indexed(BY_GROUP, group):
                # Before requests that nothing was done for yet: a GPU that is held is used soon.
                self._requests.add((request.metadata.namespace, request.metadata.name), first=True)
        metrics.RESERVATIONS.inc((new is not None) - (old is not None))

    def _add_groups(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._groups.add(group)
