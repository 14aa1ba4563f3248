"""Keeps the reservation of each shared GPU as its sharers need it. Rule G05.

Pods that have ended, or that will not be bound, are taken off; a reservation without sharers is deleted. One that was
lost, or that failed, is created again for the pods that run on its GPU. One of another program is adopted. Of several
for one group only those stay whose GPU pods have. No pod with a share is ever deleted here.
"""

from __future__ import annotations

import logging

from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import Sharer, groups_of, reservation_name, shared_gpus_of, sharers_of
from apportion.binder import metrics
from apportion.binder.events import Reports
from apportion.binder.group_labels import GroupLabels
from apportion.binder.informers import Informers
from apportion.binder.patience import Backoff, Patience
from apportion.binder.reservation_store import ReservationStore, held_gpu
from apportion.binder.running_sharers import RunningSharers, sharers_among
from apportion.binder.sharer_states import SharerState, SharerStates
from apportion.cluster import errors

log = logging.getLogger(__name__)

SOON_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 1.0
UNSEEN_SECONDS = 30.0  # for sharers without the label of the group, whose end no informer tells
Sharers = dict[PodUID, Sharer]


class Reservations:
    """Reconciles groups."""

    def __init__(
        self,
        informers: Informers,
        store: ReservationStore,
        *,
        running: RunningSharers,
        states: SharerStates,
        labels: GroupLabels,
        patience: Patience,
        reports: Reports,
    ) -> None:
        self._informers = informers
        self._store = store
        self._running = running
        self._states = states
        self._labels = labels
        self._patience = patience
        self._backoff = Backoff()
        self._reports = reports
        self._told: set[str] = set()  # uids of reservations that were reported to hold another GPU
        self._deleted: set[str] = set()  # uids of reservations that we deleted, until the informer has seen that
        informers.pods.on_change(self._pod_changed)

    async def reconcile(self, group: str) -> float | None:
        try:
            async with self._store.lock(group):
                return await self._reconcile(group)
        except errors.Conflict:  # the informer is behind, or somebody joins
            return SOON_SECONDS

    async def _reconcile(self, group: str) -> float | None:
        found = self._informers.reservations(group)
        live = [pod for pod in found if not pod.metadata.deleting and pod.metadata.uid not in self._deleted]
        if not found:
            return await self._restore(group)
        if not live:
            return None  # its end brings the group back here
        keeper = live[0] if len(live) == 1 else await self._choose(group, live)
        return LOOK_AGAIN_SECONDS if keeper is None else await self._settle(group, keeper)

    # One reservation

    async def _settle(self, group: str, reservation: Pod) -> float | None:
        listed = sharers_of(reservation.metadata)
        node = reservation.spec.node_name
        states = {uid: await self._states.of(uid, sharer, group, node) for uid, sharer in listed.items()}
        for uid, state in states.items():
            if state is SharerState.WITHDRAWN and not await self._labels.remove(uid, listed[uid], group):
                return SOON_SECONDS  # bound after all
        needed = {SharerState.RUNS, SharerState.BINDING}
        kept = {uid: sharer for uid, sharer in listed.items() if states[uid] in needed}
        here = [pod for pod in self._running.of(group) if pod.spec.node_name == node]
        kept = sharers_among(here) | kept
        if not kept:
            return await self._end(reservation, listed)
        held = held_gpu(reservation)
        left = 0.0 if held or reservation.terminal else self._patience.left(("device", reservation.metadata.uid))
        if reservation.terminal or (not held and left <= 0):
            return await self._replace(group, reservation, SharerState.BINDING in states.values())
        if kept != listed:
            self._log_change(reservation, listed, kept)
            await self._store.set_sharers(reservation, kept)
        if held:
            self._backoff.succeeded(group)
            self._compare(group, reservation, held)
        return left or (UNSEEN_SECONDS if any(self._informers.pod(uid) is None for uid in kept) else None)

    async def _end(self, reservation: Pod, listed: Sharers) -> float | None:
        """Nobody needs it. One of another program, whose first pod may not be there yet, is given some time."""
        left = 0.0 if listed else self._patience.left(("unused", reservation.metadata.uid))
        if left > 0:
            return left
        ended = ", ".join(sorted(f"{sharer.namespace}/{sharer.name}" for sharer in listed.values()))
        await self._delete(reservation, f"no pod shares {_gpu(reservation)} any more ({ended})")
        return None

    async def _replace(self, group: str, reservation: Pod, binding: bool) -> float | None:  # noqa: FBT001
        """It failed, or never got a GPU: first its waiting requests fail, then it is made again for running pods."""
        if binding:
            return LOOK_AGAIN_SECONDS
        wait = self._backoff.wait(group)
        if wait > 0:
            return wait
        self._backoff.attempted(group)
        status = reservation.status
        why = status.message or status.reason or status.phase if reservation.terminal else "it got no GPU"
        await self._delete(reservation, f"{why}; it is created again for the pods that run on its GPU")
        return None

    def _compare(self, group: str, reservation: Pod, held: DeviceUUID) -> None:
        used = self._running.gpus(group)
        uid = reservation.metadata.uid
        if used and used != {held} and uid not in self._told:
            self._told.add(uid)
            self._reports.changed(reservation, self._running.of(group), held, used)

    def _log_change(self, reservation: Pod, before: Sharers, after: Sharers) -> None:
        name, device = reservation.metadata.name, held_gpu(reservation) or "without a GPU"
        for uid in before.keys() ^ after.keys():
            sharer = before.get(uid) or after[uid]
            what = "left" if uid in before else "was added to"
            log.info("pod %s/%s %s GPU reservation %s (%s)", sharer.namespace, sharer.name, what, name, device)

    # None, or several

    async def _restore(self, group: str) -> float | None:
        """Pods that run on a GPU which nobody holds: the reservation was deleted by somebody else."""
        if not self._running.of(group):
            return None
        running = await self._running.read(group)
        nodes = {pod.spec.node_name for pod in running}
        for node in nodes:
            if await self._store.get(reservation_name(node, group)) is not None:
                return LOOK_AGAIN_SECONDS  # the informer has not seen it yet
        wait = self._backoff.wait(group)
        if wait > 0:
            return wait
        self._backoff.attempted(group)
        for node in nodes:
            await self._create_again(group, node, [pod for pod in running if pod.spec.node_name == node])
        return None

    async def _create_again(self, group: str, node: NodeName, pods: list[Pod]) -> None:
        written = [gpu.device for pod in pods for gpu in shared_gpus_of(pod.metadata) if gpu.group == group]
        planned = written[0] if written else DeviceUUID("")
        sharers = sharers_among(pods)
        why = f"the one before was lost, and {len(sharers)} pods run on its GPU"
        made = await self._store.create(node, group, planned, sharers, why)
        metrics.RESTORED.inc()
        self._reports.restored(made, pods)

    async def _choose(self, group: str, live: list[Pod]) -> Pod | None:
        """The one that stays. None: look again when the others have left."""
        used = self._running.gpus(group)

        def order(pod: Pod) -> tuple[bool, bool, bool, str, str]:
            held, meta = held_gpu(pod), pod.metadata
            foreign = meta.name != reservation_name(pod.spec.node_name, group)
            return held not in used, not held, foreign, meta.creation_timestamp or "", meta.name

        keeper, *others = sorted(live, key=order)
        alone = True
        for other in others:
            if held_gpu(other) in used:
                log.warning(
                    "group %s: pods run on the GPUs of GPU reservations %s and %s: both stay",
                    *(group, keeper.metadata.name, other.metadata.name),
                )
                continue
            await self._merge(group, keeper, other)
            alone = False
        return keeper if alone else None

    async def _merge(self, group: str, keeper: Pod, other: Pod) -> None:
        """Its running pods go to the one that stays, then it is deleted."""
        listed = sharers_of(other.metadata)
        node = other.spec.node_name
        states = {uid: await self._states.of(uid, sharer, group, node) for uid, sharer in listed.items()}
        if SharerState.BINDING in states.values() and held_gpu(other):
            return  # about to be bound to its GPU, or to fail
        running = {uid: sharer for uid, sharer in listed.items() if states[uid] is SharerState.RUNS}
        kept = sharers_of(keeper.metadata)
        if running.keys() - kept.keys():
            await self._store.set_sharers(keeper, running | kept)
            return
        await self._delete(other, f"group {group} has GPU reservation {keeper.metadata.name}")

    async def _delete(self, reservation: Pod, why: str) -> None:
        await self._store.delete(reservation, why)
        if self._informers.pod(reservation.uid) is not None:
            self._deleted.add(reservation.metadata.uid)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and self._informers.is_reservation(new):
            self._patience.forget(*(("lost", group) for group in groups_of(new.metadata)))
        if new is None and old is not None:
            uid = old.metadata.uid
            self._told.discard(uid)
            self._deleted.discard(uid)
            self._patience.forget(*((what, uid) for what in ("device", "deleted", "full", "unused", "doubled")))


def _gpu(reservation: Pod) -> str:
    held = held_gpu(reservation)
    return f"GPU {held}" if held else "its GPU"
