"""Shares of GPUs in the fleet: which pod has how much of which GPU.

Three objects say so. A BindRequest that did not fail: its pod counts on its node from the moment at which the scheduler
wrote it, though the binder has not bound it yet. A bound pod, with what the binder wrote on it. And a reservation pod,
which holds the GPU for those who share it: a pod that is not bound yet will get the GPU of its reservation pod. Until
there is one, it counts where it was planned, or elsewhere if somebody else has that GPU (`device_claims`).

If a reservation was lost and its successor has another GPU than the pods that share it, that GPU takes no more shares:
nothing holds it for them any more (G05).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import NO_NODE, DeviceUUID, NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.apis.shared_gpus import SharedGpu
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import HeldShare
from apportion.core.operations import ObjectKind, share_key
from apportion.view.accelerators import Accelerators
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog
from apportion.view.sharing.device_claims import Claim, Claims, DeviceClaims, NodeDevices, Source
from apportion.view.waiting import WaitingPods


class Shares:
    """Feeds BindRequests, and what pods say about shares, into the fleet. `pods` are all pods by uid."""

    def __init__(
        self,
        fleet: Fleet,
        changes: ChangeLog,
        waiting: WaitingPods,
        accelerators: Accelerators,
        assumptions: Assumptions,
        pods: Mapping[PodUID, Pod],
    ) -> None:
        self._fleet, self._changes, self._waiting = fleet, changes, waiting
        self._accelerators, self._assumptions, self._pods = accelerators, assumptions, pods
        self._requests: dict[PodUID, BindRequest] = {}  # by pod, those that did not fail
        self._failed: dict[PodUID, BindRequest] = {}
        self._requested: set[PodUID] = set()  # pods that are in the fleet because of them
        self._reservations: dict[str, dict[PodUID, Pod]] = {}  # by group
        self._sharers: dict[str, set[PodUID]] = {}  # by group
        self._groups: dict[PodUID, set[str]] = {}  # the same by pod
        self._devices = DeviceClaims()
        self._closed: dict[str, frozenset[DeviceUUID]] = {}  # by group: GPUs that no reservation of it holds
        accelerators.on_gpus_changed(self._gpus_changed)

    def reservation_of(self, group: str) -> Pod | None:
        """The pod that holds a shared GPU; of several one that says which GPU it has."""
        found = min(self._reservations.get(group, {}).values(), key=_without_gpu, default=None)
        return self._pods.get(found.uid, found) if found is not None else None  # its status may be newer

    def request_of(self, uid: PodUID) -> BindRequest | None:
        """What the binder is to do with a pod that has no node yet; a request that failed does not count."""
        return self._requests.get(uid) if uid in self._requested else None

    def failed_request_of(self, uid: PodUID) -> BindRequest | None:
        return self._failed.get(uid)

    def uuid_of(self, device: DeviceUUID) -> str:
        """The UUID of a GPU; empty if only its slot is known."""
        if not shared_gpus.is_slot(device):
            return device
        group = self._fleet.group_on(device)
        written = next((gpu.uuid for gpu in self._gpus_of(group) if gpu.device == device and gpu.uuid), "")
        reservation = self.reservation_of(group)
        return written or (reservation.metadata.annotations.get(names.RESERVED_GPU, "") if reservation else "")

    def bind_request_changed(self, old: BindRequest | None, new: BindRequest | None) -> None:
        if old is not None:
            self._failed.pop(PodUID(old.spec.pod_uid), None)
            self._fleet.failed_nodes.pop(PodUID(old.spec.pod_uid), None)
        if new is not None and new.failed:
            self._failed[PodUID(new.spec.pod_uid)] = new
            self._fleet.failed_nodes[PodUID(new.spec.pod_uid)] = new.failed_nodes
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid or new.failed):
            uid = PodUID(old.spec.pod_uid)
            known = self._requests.get(uid)
            if known is not None and known.metadata.uid == old.metadata.uid:
                del self._requests[uid]
                self.refresh(uid)
        if new is not None and not new.failed and new.spec.pod_uid:
            uid = PodUID(new.spec.pod_uid)
            self._requests[uid] = new
            self.refresh(uid)

    def reservation_changed(self, pod: Pod, *, gone: bool) -> None:
        """A pod that holds a shared GPU came, changed, or has ended."""
        uid, node = PodUID(pod.metadata.uid), pod.spec.node_name
        for group in shared_gpus.groups_of(pod.metadata):
            reservations = self._reservations.setdefault(group, {})
            if gone:
                reservations.pop(uid, None)
            else:
                reservations[uid] = pod
            if not reservations:
                del self._reservations[group]
            self._accelerators.set_reserved(node, uid, () if gone else self._devices_of(pod, group))
            self._group_changed(group)
        self._claim(uid, node, {} if gone else _claims_of_reservation(pod))

    def refresh(self, uid: PodUID) -> None:
        """Bring the fleet in line with what is known about a pod that waits, or is bound."""
        pod = self._pods.get(uid)
        if pod is not None and pod.spec.node_name:
            self._requested.discard(uid)
            if uid in self._fleet.pod_nodes:
                self._claim(uid, pod.spec.node_name, _claims_of_pod(pod))
                self._set(uid, self._of_bound_pod(uid, pod))
            return
        waiting = self._waiting.get(uid)
        asked = waiting.reading.request if waiting is not None else None
        wanted = self._requests.get(uid)
        if wanted is None or asked is None or asked.share is None:
            self._take_back(uid)
        else:
            self._enter(asked, wanted)

    def ended(self, uid: PodUID) -> None:
        """No container of the pod is left."""
        self._requested.discard(uid)
        self._set(uid, [])
        self._claim(uid, NO_NODE, {})

    def _enter(self, asked: Request, wanted: BindRequest) -> None:
        """A pod is about to be bound: by this process, by one that led before, or by another that leads."""
        uid, spec = asked.uid, wanted.spec
        node = NodeName(spec.selected_node)
        groups = tuple(share.group for share in self._fleet.shares_of(uid))
        if self._fleet.pod_nodes.get(uid) != node or groups != tuple(spec.selected_gpu_groups):
            if not self._assumptions.refuted(ObjectKind.POD, uid):
                self._fleet.take_away(uid)
            self._fleet.add_pod(asked, node)
            self._changes.note(Happened.POD_CAME, node, uid)
        self._requested.add(uid)
        self._claim(uid, node, _claims_of_request(wanted))
        self._set(uid, list(self._of_request(asked, wanted)))

    def _take_back(self, uid: PodUID) -> None:
        """There is no request any more that would bind the pod."""
        if uid not in self._requested:
            return
        self._requested.discard(uid)
        node = self._fleet.pod_nodes.get(uid)
        if not self._assumptions.refuted(ObjectKind.POD, uid):
            self._set(uid, [])
            self._fleet.take_away(uid)
            if node is not None:
                self._changes.note(Happened.POD_GONE, node, uid)
        self._note_sharer(uid, set())
        self._claim(uid, NO_NODE, {})

    def _of_request(self, asked: Request, wanted: BindRequest) -> Iterator[SharedGpu]:
        """A request has one amount, that of its first GPU: of another model the pod takes another one (G04)."""
        spec = wanted.spec
        promised = spec.received_gpu.memory_mib if spec.received_gpu is not None else 0
        node = NodeName(spec.selected_node)
        for group, planned in zip(spec.selected_gpu_groups, spec.selected_devices, strict=False):
            device = self._device_of(group, node) or self._devices.device_of(group, node, DeviceUUID(planned))
            yield SharedGpu(group, device, self._mib(asked, device, node) or promised)

    def _of_bound_pod(self, uid: PodUID, pod: Pod) -> list[SharedGpu]:
        node = pod.spec.node_name
        written = shared_gpus.shared_gpus_of(pod.metadata)
        asked = self._fleet.nodes[node].pods[uid]
        if written:
            return [self._as_measured(asked, gpu, node) for gpu in written]
        if asked.share is None:
            return []
        found = [(group, self._device_of(group, node)) for group in shared_gpus.groups_of(pod.metadata)]
        return [
            SharedGpu(group, device or DeviceUUID(group), self._mib(asked, device, node)) for group, device in found
        ]

    def _as_measured(self, asked: Request, written: SharedGpu, node: NodeName) -> SharedGpu:
        """The memory of a slot is what the agent or a label says now; the pod was bound by what was known then."""
        gpu = self._as_known(written, node)
        if not shared_gpus.is_slot(written.device):
            return gpu
        return msgspec.structs.replace(gpu, mib=self._mib(asked, gpu.device, node) or gpu.mib)

    def _as_known(self, gpu: SharedGpu, node: NodeName) -> SharedGpu:
        """A slot is known by its UUID once an agent reports the GPUs of the node."""
        uuid = DeviceUUID(gpu.uuid)
        known = self._fleet.gpu_nodes.get(uuid) == node
        device = uuid if known else self._devices.slot_of(gpu.group, node, gpu.device)
        return msgspec.structs.replace(gpu, device=device)

    def _mib(self, asked: Request, device: DeviceUUID | None, node: NodeName) -> int:
        """What the share takes of a GPU; 0 if the node has no such GPU."""
        if device is None or self._fleet.gpu_nodes.get(device) != node or asked.share is None:
            return 0
        return self._fleet.nodes[node].gpus[device].mib_of(asked.share)

    def _device_of(self, group: str, node: NodeName) -> DeviceUUID | None:
        """The GPU of a group on a node, as its reservation pod says."""
        pod = self.reservation_of(group)
        devices = self._devices_of(pod, group) if pod is not None else ()
        return next((device for device in devices if self._fleet.gpu_nodes.get(device) == node), None)

    def _devices_of(self, reservation: Pod, group: str) -> tuple[DeviceUUID, ...]:
        """The GPU that a reservation pod has, by its UUID and by its slot; the fleet knows one of these."""
        annotations, node = reservation.metadata.annotations, reservation.spec.node_name
        planned = annotations.get(names.PLANNED_GPU, "")
        slot = self._devices.slot_of(group, node, DeviceUUID(planned)) if shared_gpus.is_slot(planned) else ""
        found = (annotations.get(names.RESERVED_GPU, ""), slot)
        return tuple(DeviceUUID(each) for each in found if each)

    def _claim(self, uid: PodUID, node: NodeName, claims: Claims) -> None:
        for each in sorted(self._devices.claim(uid, node, claims)):
            self._move_groups(each)

    def _move_groups(self, node: NodeName) -> None:
        for group in sorted(self._devices.move(node, self._devices_on(node))):
            for uid, pod in self._reservations.get(group, {}).items():
                self._accelerators.set_reserved(pod.spec.node_name, uid, self._devices_of(pod, group))
            self._group_changed(group)

    def _devices_on(self, node: NodeName) -> NodeDevices:
        gpus = self._fleet.nodes[node].gpus if node in self._fleet.nodes else {}
        usable = (device for device, gpu in gpus.items() if gpu.facts.healthy and not gpu.facts.mig)
        in_order = sorted(usable, key=lambda device: (len(device), device))  # slots by their numbers
        return NodeDevices(gpus.keys(), in_order, self._accelerators.held_on(node))

    def _set(self, uid: PodUID, gpus: list[SharedGpu]) -> None:
        before = {share.key: share for share in self._fleet.shares_of(uid)} if self._fleet.holds(uid) else {}
        node = self._fleet.pod_nodes.get(uid, NO_NODE)
        after = {
            share_key(uid, number): HeldShare(share_key(uid, number), gpu.device, gpu.mib, uid, gpu.group, node)
            for number, gpu in enumerate(gpus)
        }
        if before != after:
            self._replace(before, after)
        self._note_sharer(uid, {gpu.group for gpu in gpus})

    def _replace(self, before: Mapping[str, HeldShare], after: Mapping[str, HeldShare]) -> None:
        for key in before.keys() - after.keys():
            self._fleet.remove_share(key)
        for share in after.values():
            self._fleet.add_share(*share)
        old, new = ({share.gpu for share in shares.values()} for shares in (before, after))
        for node in sorted({self._fleet.gpu_nodes[gpu] for gpu in old | new if gpu in self._fleet.gpu_nodes}):
            if any(self._fleet.gpu_nodes.get(gpu) == node for gpu in old - new):
                self._changes.note(Happened.NODE_CHANGED, node)
            self._accelerators.assign_devices(node)  # for whom another GPU was assumed

    def _note_sharer(self, uid: PodUID, groups: set[str]) -> None:
        before = self._groups.get(uid, set())
        for group in before - groups:
            self._sharers[group].discard(uid)
            if not self._sharers[group]:
                del self._sharers[group]
        for group in groups - before:
            self._sharers.setdefault(group, set()).add(uid)
        if groups:
            self._groups[uid] = groups
        else:
            self._groups.pop(uid, None)
        for group in sorted(before | groups):
            self._check(group)

    def _group_changed(self, group: str) -> None:
        for uid in sorted(self._sharers.get(group, ())):
            self.refresh(uid)
        self._check(group)

    def _gpus_changed(self, node: NodeName) -> None:
        self._move_groups(node)
        pods = self._fleet.nodes[node].pods if node in self._fleet.nodes else ()
        for uid in sorted(self._groups.keys() & pods):
            self.refresh(uid)

    def _check(self, group: str) -> None:
        """Does a reservation hold the GPU that the pods have?"""
        reservations = self._reservations.get(group, {}).values()
        held = {pod.metadata.annotations.get(names.RESERVED_GPU, "") for pod in reservations} - {""}
        closed = frozenset(gpu.device for gpu in self._gpus_of(group) if held and _is_none_of(held, gpu))
        if closed == self._closed.get(group, frozenset()):
            return
        if closed:
            self._closed[group] = closed
        else:
            del self._closed[group]
        self._accelerators.set_closed(frozenset().union(*self._closed.values()))

    def _gpus_of(self, group: str) -> Iterator[SharedGpu]:
        """What the bound pods of a group have of it."""
        for uid in self._sharers.get(group, ()):
            pod = self._pods.get(uid)
            if pod is not None and pod.spec.node_name:
                found = shared_gpus.shared_gpus_of(pod.metadata)
                yield from (self._as_known(gpu, pod.spec.node_name) for gpu in found if gpu.group == group)


def _claims_of_pod(pod: Pod) -> Claims:
    return {gpu.group: Claim(Source.POD, gpu.device, _uuid(gpu)) for gpu in shared_gpus.shared_gpus_of(pod.metadata)}


def _uuid(gpu: SharedGpu) -> DeviceUUID:
    return DeviceUUID(gpu.uuid) if shared_gpus.is_slot(gpu.device) else gpu.device


def _claims_of_reservation(pod: Pod) -> Claims:
    planned, holds = (pod.metadata.annotations.get(name, "") for name in (names.PLANNED_GPU, names.RESERVED_GPU))
    claim = Claim(Source.RESERVATION, DeviceUUID(planned), DeviceUUID(holds))
    return dict.fromkeys(shared_gpus.groups_of(pod.metadata), claim)


def _claims_of_request(request: BindRequest) -> Claims:
    spec = request.spec
    places = zip(spec.selected_gpu_groups, spec.selected_devices, strict=False)
    return {group: Claim(Source.REQUEST, DeviceUUID(device)) for group, device in places}


def _is_none_of(held: AbstractSet[str], gpu: SharedGpu) -> bool:
    """Of a slot without a UUID that cannot be said."""
    known = gpu.uuid or not shared_gpus.is_slot(gpu.device)
    return bool(known) and held.isdisjoint((gpu.uuid, gpu.device))


def _without_gpu(pod: Pod) -> tuple[bool, str]:
    return names.RESERVED_GPU not in pod.metadata.annotations, pod.metadata.uid
