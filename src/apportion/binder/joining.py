"""Putting a pod on the reservation of a shared GPU: the reservation is created, or the pod is added to its sharers.

A reservation is created with its first pod, if that fits on the GPU that is planned; others are added when it has its
GPU, if they fit beside all who are there. The kubelet may hand out another GPU than planned; then the fit is checked
again, in an order that every binder sees the same: whoever does not fit is refused, and the others wait until the
refused ones are off the reservation.

What the informer shows, or what the server answered to the last write, is enough to add a pod: the server refuses a
change of anything older than it has. Whether a pod that this attempt did not add is on a reservation already, the
server is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import Sharer, groups_of, reservation_name, sharers_of
from apportion.apis.shares import decimal
from apportion.binder.device_memory import DeviceMemories
from apportion.binder.gpu_users import GpuUsers
from apportion.binder.informers import Informers
from apportion.binder.refusals import REFUSED_BY_SERVER, CannotBind
from apportion.binder.reservation_store import ReservationStore, held_gpu, planned_gpu
from apportion.binder.running_sharers import RunningSharers, sharers_among
from apportion.binder.sharer_states import SharerState, SharerStates
from apportion.cluster import errors
from apportion.cluster.pending_writes import version_of
from apportion.core import shared_device
from apportion.core.shared_device import Refused

ATTEMPTS = 5
LOOK_AGAIN_SECONDS = 0.2
REMEMBERED_GROUPS = 20_000


@dataclass(frozen=True)
class Wanted:
    """One GPU of one BindRequest."""

    uid: PodUID
    sharer: Sharer
    node: NodeName
    group: str
    device: DeviceUUID  # as the scheduler planned it


@dataclass
class Attempt:
    """What this process has done to bind a pod since it read it."""

    pod: Pod
    added_to: set[str] = field(default_factory=set)  # groups


@dataclass(frozen=True)
class Held:
    """The reservation holds a GPU, and the pod has its share of it."""

    group: str
    uuid: DeviceUUID
    device: DeviceUUID  # as the fleet knows it: the UUID, or a slot where no agent reports GPUs
    mib: int
    milli: int
    memory_known: bool = True

    def __str__(self) -> str:
        amount = f"{self.mib} MiB" if self.memory_known else decimal(self.milli)
        return f"{amount} of GPU {self.uuid}"


@dataclass(frozen=True)
class Waits:
    """Not yet, and until when: `key` has a deadline. What is waited for may happen `unseen`: then look again."""

    key: Hashable
    why: str
    unseen: bool = False


class Joining:
    """The first half of binding a pod."""

    def __init__(
        self,
        informers: Informers,
        store: ReservationStore,
        running: RunningSharers,
        memories: DeviceMemories,
        states: SharerStates,
        users: GpuUsers,
    ) -> None:
        self._informers = informers
        self._store = store
        self._running = running
        self._memories = memories
        self._states = states
        self._users = users
        self._known_groups: OrderedDict[str, None] = OrderedDict()
        self._answers: dict[str, Pod] = {}  # by group: a reservation as we wrote it, until the informer has seen that
        informers.pods.on_change(self._pod_changed)

    async def join(self, wanted: Wanted, attempt: Attempt) -> Held | Waits:
        """Raises CannotBind, and Conflict if others keep changing the reservation."""
        async with self._store.lock(wanted.group):
            joined = await self._join_known(wanted, attempt)
            if joined is not None:
                return joined
            for _ in range(ATTEMPTS):
                try:
                    return await self._join(wanted, attempt)
                except (errors.Conflict, errors.NotFound):
                    self._remember(wanted.group)
        raise errors.Conflict(409, "Conflict", f"the GPU reservation of group {wanted.group} keeps changing")

    def waits(self, request: BindRequest) -> Waits | None:
        """Whether all of its reservations are there, and one has no GPU yet: only that is left to wait for."""
        spec, found = request.spec, None
        for group in spec.selected_gpu_groups:
            seen = self._informers.reservations(group)
            if len(seen) != 1 or not _is_live(seen[0], NodeName(spec.selected_node)):
                return None
            found = found or (None if held_gpu(seen[0]) else _without_gpu(seen[0]))
        return found

    async def _join_known(self, wanted: Wanted, attempt: Attempt) -> Held | Waits | None:
        """None: the server must be asked."""
        seen = self._informers.reservations(wanted.group)
        answer = self._answers.pop(wanted.group, None)
        known = max([*seen, *([answer] if answer else [])], key=version_of, default=None)
        if known is None or len(seen) > 1 or known.metadata.deleting:
            return None
        if wanted.uid in sharers_of(known.metadata) and wanted.group not in attempt.added_to:
            return None
        try:
            return await self._hold(await self._add(known, wanted, attempt), wanted)
        except (errors.Conflict, errors.NotFound, CannotBind):
            return None

    async def _join(self, wanted: Wanted, attempt: Attempt) -> Held | Waits:
        reservation = await self._current(wanted)
        if isinstance(reservation, Waits):
            return reservation
        if reservation is None:
            lost = self._lost_reservation(wanted)
            if lost is not None:
                return lost
            reservation = await self._create(wanted, attempt)
        else:
            meta = reservation.metadata
            if meta.deleting:
                return Waits(("deleted", meta.uid), f"GPU reservation {meta.name} is terminating")
            reservation = await self._add(reservation, wanted, attempt)
        return await self._hold(reservation, wanted)

    def _lost_reservation(self, wanted: Wanted) -> Waits | None:
        """GPUs in use that nobody holds are held again first: the kubelet would give them to a new reservation."""
        lost = [group for group in self._running.without_reservation(wanted.node) if group != wanted.group]
        if not lost:
            return None
        why = f"the GPU reservation of group {lost[0]} on node {wanted.node} was lost, and there is no new one"
        return Waits(("lost", lost[0]), why, unseen=True)

    async def _current(self, wanted: Wanted) -> Pod | Waits | None:
        seen = [pod for pod in self._informers.reservations(wanted.group) if not pod.metadata.deleting]
        if len(seen) > 1:
            return Waits(("doubled", seen[0].metadata.uid), f"group {wanted.group} has {len(seen)} GPU reservations")
        if not seen and wanted.group not in self._known_groups:
            return None  # if somebody has created it, creating it says so
        name = reservation_name(wanted.node, wanted.group)
        found = await self._store.get(name)
        if found is None and seen and seen[0].metadata.name != name:
            return await self._store.get(seen[0].metadata.name)  # of another program
        return found

    async def _without_ended(self, sharers: Mapping[PodUID, Sharer], wanted: Wanted) -> dict[PodUID, Sharer]:
        states = {uid: await self._states.of(uid, sharer, wanted.group, wanted.node) for uid, sharer in sharers.items()}
        return {uid: sharer for uid, sharer in sharers.items() if states[uid] is not SharerState.ENDED}

    async def _create(self, wanted: Wanted, attempt: Attempt) -> Pod:
        running: list[Pod] = []
        if wanted.group in self._known_groups:  # a reservation that was lost may have left pods running
            running = await self._running.read(wanted.group)
        sharers = sharers_among(running)
        self._check_fit(wanted, sharers, wanted.device)
        self._remember(wanted.group)
        key = f"{wanted.sharer.namespace}/{wanted.sharer.name}"
        try:
            made = await self._store.create(
                wanted.node,
                wanted.group,
                wanted.device,
                {**sharers, wanted.uid: wanted.sharer},
                f"pod {key} shares the GPU" + (f" with {len(sharers)} others" if sharers else ""),
            )
        except REFUSED_BY_SERVER as error:
            raise CannotBind(f"the GPU reservation cannot be created: {error}") from error
        attempt.added_to.add(wanted.group)
        return self._written(wanted.group, made)

    async def _add(self, reservation: Pod, wanted: Wanted, attempt: Attempt) -> Pod:
        meta = reservation.metadata
        if reservation.terminal:
            status = reservation.status
            why = ": ".join(part for part in (status.reason, status.message) if part) or status.phase
            raise CannotBind(f"GPU reservation {meta.name} failed on node {reservation.spec.node_name}: {why}")
        if reservation.spec.node_name != wanted.node:
            raise CannotBind(f"GPU reservation {meta.name} is on node {reservation.spec.node_name}")
        sharers = sharers_of(meta)
        if sharers.get(wanted.uid) == wanted.sharer:
            return reservation
        sharers = sharers or sharers_among(self._running.of(wanted.group))
        held = held_gpu(reservation)
        if not held or self._refused(wanted.node, held, sharers):
            return reservation
        self._check_group(reservation, wanted.group)
        try:
            self._check_fit(wanted, sharers, held)
        except CannotBind:  # pods that have ended leave with the same write
            sharers = await self._without_ended(sharers, wanted)
            self._check_fit(wanted, sharers, held)
        try:
            changed = await self._store.set_sharers(reservation, {**sharers, wanted.uid: wanted.sharer})
        except REFUSED_BY_SERVER as error:
            raise CannotBind(f"the pod cannot be added to GPU reservation {meta.name}: {error}") from error
        attempt.added_to.add(wanted.group)
        return self._written(wanted.group, changed)

    async def _hold(self, reservation: Pod, wanted: Wanted) -> Held | Waits:
        held = self._held(reservation, wanted)
        if isinstance(held, Held):
            await self._users.claim(held.uuid, wanted.node, wanted.group, wanted.uid)
        return held

    def _held(self, reservation: Pod, wanted: Wanted) -> Held | Waits:
        name, uid = reservation.metadata.name, reservation.metadata.uid
        uuid = held_gpu(reservation)
        if not uuid:
            return _without_gpu(reservation)
        self._check_group(reservation, wanted.group)
        memory, sharers = self._memories.of(wanted.node, uuid), sharers_of(reservation.metadata)
        refused = self._refused(wanted.node, uuid, sharers)
        if wanted.uid in refused:
            why = refused[wanted.uid]
            raise CannotBind(f"GPU reservation {name} holds GPU {uuid}, planned was {wanted.device}: {why}")
        if refused:
            return Waits(("full", uid), f"pods that do not fit on GPU {uuid} leave GPU reservation {name}")
        mine = wanted.sharer.mib_on(memory.mib)
        device = uuid if self._memories.is_reported(wanted.node, uuid) else planned_gpu(reservation) or wanted.device
        return Held(wanted.group, uuid, device, mine, shared_device.milli(memory, wanted.sharer), memory.known)

    def _refused(self, node: NodeName, gpu: DeviceUUID, sharers: Mapping[PodUID, Sharer]) -> dict[PodUID, Refused]:
        divided = shared_device.divide(self._memories.of(node, gpu), dict(sorted(sharers.items())))
        return {uid: each for uid, each in divided.items() if isinstance(each, Refused)}

    def _check_group(self, reservation: Pod, group: str) -> None:
        held, used = held_gpu(reservation), self._running.gpus(group)
        if held and used and used != {held}:
            raise CannotBind(
                f"GPU reservation {reservation.metadata.name} holds GPU {held}, but pods of its group run on "
                f"{', '.join(sorted(used))}: the group takes no further pods"
            )

    def _check_fit(self, wanted: Wanted, sharers: dict[PodUID, Sharer], device: DeviceUUID) -> None:
        memory = self._memories.of(wanted.node, device)
        result = shared_device.joined(memory, sharers, wanted.uid, wanted.sharer)
        if isinstance(result, Refused):
            raise CannotBind(f"the pod does not fit on GPU {device} of node {wanted.node}: {result}")

    def _written(self, group: str, reservation: Pod) -> Pod:
        if all(version_of(seen) < version_of(reservation) for seen in self._informers.reservations(group)):
            self._answers[group] = reservation
        return reservation

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        for group in groups_of(subject.metadata):
            self._remember(group)
            answer = self._answers.get(group)
            same = answer is not None and answer.metadata.uid == subject.metadata.uid
            if same and (new is None or version_of(new) >= version_of(answer)):
                del self._answers[group]

    def _remember(self, group: str) -> None:
        self._known_groups[group] = None
        self._known_groups.move_to_end(group)
        if len(self._known_groups) > REMEMBERED_GROUPS:
            self._known_groups.popitem(last=False)


def _is_live(reservation: Pod, node: NodeName) -> bool:
    """Whether it has a GPU of the node, or can still get one."""
    return not reservation.metadata.deleting and not reservation.terminal and reservation.spec.node_name == node


def _without_gpu(reservation: Pod) -> Waits:
    meta = reservation.metadata
    why = f"GPU reservation {meta.name} on node {reservation.spec.node_name} has no GPU yet"
    return Waits(("device", meta.uid), why)
