"""One node of the fleet: what it offers, what its pods and reservations hold, and the ledgers of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.noderules import HostPort
from apportion.apis.request import Request
from apportion.core.fleet_facts import GpuFacts, NodeFacts, Reservation
from apportion.core.ledger import GpuLedger
from apportion.core.records.recent_changes import RecentChanges

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
MILLI = 1000
MOST_CPU = 10**7  # milli: what a node has beyond ten thousand cores makes no difference to any price
MOST_GPUS = 1024  # of one node; more are not looked at
_SHARE = "/share/"


class Offer(NamedTuple):
    """CPU, GPUs that are shared or given whole, and their product."""

    cpu: int
    gpus: int
    product: str


class SavedNode(NamedTuple):
    """What a node offers, to be put back by a rollback."""

    facts: NodeFacts | None
    gpus: tuple[GpuFacts, ...]
    ready: bool
    wholes: dict[PodUID, tuple[DeviceUUID, ...]]


class NodeState:
    """Mutable; only the fleet changes it. `version` grows with every change, and the name goes to the log.

    Reservations hold what their future pods will need. What they hold is computed again after every change of the
    node's pods and GPUs, so it depends on the current state alone and not on its history.
    """

    __slots__ = (
        "_log",
        "_reservation_namespace",
        "facts",
        "gpus",
        "known_facts",
        "name",
        "offered",
        "pods",
        "ports",
        "ready",
        "reservation_pods",
        "reserved",
        "reserved_amounts",
        "reserved_devices",
        "used",
        "version",
        "wholes",
    )

    def __init__(self, name: NodeName, log: RecentChanges[NodeName], reservation_namespace: str) -> None:
        self.name = name
        self._log = log
        self._reservation_namespace = reservation_namespace
        self.facts: NodeFacts | None = None
        self.gpus: dict[DeviceUUID, GpuLedger] = {}
        self.ready = False  # its agent makes slices now
        self.pods: dict[PodUID, Request] = {}
        self.used: dict[str, int] = {}
        self.ports: dict[HostPort, int] = {}
        self.wholes: dict[PodUID, tuple[DeviceUUID, ...]] = {}  # pod -> GPUs recorded for it, whole or as a reservation
        self.reservation_pods = 0  # pods that hold a GPU for its sharers
        self.reserved: dict[str, Reservation] = {}
        self.reserved_amounts: dict[str, int] = {}  # what reservations hold, except what terminating pods hold for them
        self.reserved_devices: dict[str, tuple[DeviceUUID, ...]] = {}  # whole GPUs that are assumed, by reservation
        self.known_facts: tuple[NodeFacts | None, tuple[GpuFacts, ...]] = (None, ())
        self.offered: Offer | None = None
        self.version = 0

    def touch(self) -> None:
        self.version += 1
        self._log.add(self.name)

    def free(self, resource: str) -> int:
        """What a new pod may take; negative when the node shrank below what it holds."""
        allocatable = self.facts.allocatable.get(resource, 0) if self.facts else 0
        if self.reserved:
            allocatable -= self.reserved_amounts.get(resource, 0)
        if resource == PODS:
            return allocatable - len(self.pods) - self._unreserved
        if resource == names.NVIDIA_GPU:
            allocatable -= self._unreserved
        return allocatable - self.used.get(resource, 0)

    @property
    def _unreserved(self) -> int:
        """Shared GPUs whose reservation pod, which will hold the device, is not bound yet. A reservation pod that does
        not say which GPU it has is that of one of them."""
        shared = sum(1 for gpu in self.gpus.values() if gpu.shares and gpu.reservation is None)
        return max(0, shared - self.silent_reservations) if shared else 0

    @property
    def silent_reservations(self) -> int:
        """Reservation pods of which it is not known which GPU they have."""
        return self.reservation_pods - sum(1 for uid in self.wholes if self.reserves(self.pods[uid]))

    @property
    def unshared(self) -> int:
        """How many GPUs can be shared for the first time: each needs a device and a reservation pod."""
        return max(0, min(self.free(names.NVIDIA_GPU), self.free(PODS) - 1))

    def all_facts(self) -> tuple[NodeFacts | None, tuple[GpuFacts, ...]]:
        """Of the node and its GPUs."""
        return self.facts, tuple(gpu.facts for gpu in self.gpus.values())

    def offer(self) -> Offer | None:
        """What the node brings to the fleet."""
        if self.facts is None:
            return None
        product = self.facts.labels.get(names.GPU_PRODUCT_LABEL, "")
        return Offer(self.facts.allocatable.get(CPU, 0), self.gpu_count, product)

    @property
    def gpu_count(self) -> int:
        """GPUs that are shared or given whole here; where nobody reports them, what the kubelet offers."""
        if self.gpus:
            return sum(1 for _ in self.shareable())
        return min(self.facts.allocatable.get(names.NVIDIA_GPU, 0), MOST_GPUS) if self.facts else 0

    @property
    def free_cpu(self) -> int:
        """Free CPU as prices see it: kept within bounds in which they can be worked out in 64 bits."""
        return max(-MOST_CPU, min(self.free(CPU), MOST_CPU))

    @property
    def all_cpu(self) -> int:
        """The node's CPU within the same bounds."""
        return min(self.facts.allocatable.get(CPU, 0), MOST_CPU) if self.facts else 0

    def shareable(self) -> Iterator[GpuLedger]:
        return (gpu for gpu in self.gpus.values() if not gpu.facts.mig and gpu.facts.healthy)

    def remainders(self) -> tuple[int, ...]:
        """What is left of each such GPU, in milli."""
        if self.gpus:
            return tuple(gpu.left_milli for gpu in self.shareable())
        count = self.gpu_count
        free = min(count, max(0, self.free(names.NVIDIA_GPU)))
        return (MILLI,) * free + (0,) * (count - free)

    def remainders_after(self, request: Request) -> tuple[int | None, ...]:
        """What would be left of each with the request's share on it; None where that does not fit."""
        share = request.share
        assert share is not None
        fresh = self.unshared > 0
        return tuple(gpu.left_after(share) if fresh or gpu.shares else None for gpu in self.shareable())

    def add_pod(self, request: Request, devices: tuple[DeviceUUID, ...] = (), *, exactly: bool = False) -> None:
        """`devices` are whole GPUs of the pod as far as they are known; `exactly` if no others may be assumed."""
        if self.reserved:
            self._lift_reservations()
        self.pods[request.uid] = request
        for resource, amount in request.resources.items():
            self.used[resource] = self.used.get(resource, 0) + amount
        for port in request.rules.ports:
            self.ports[port] = self.ports.get(port, 0) + 1
        if self.reserves(request):
            self.reservation_pods += 1
            self.restore_devices({request.uid: held} if (held := self.present(devices)) else {})
        elif request.whole_gpus and exactly:
            self.restore_devices({request.uid: devices} if devices else {})
        elif request.whole_gpus:
            self._give_devices(request, devices)
        if self.reserved:
            self.place_reservations()
        self.touch()

    def remove_pod(self, uid: PodUID) -> Request:
        if self.reserved:
            self._lift_reservations()
        request = self.pods.pop(uid)
        for resource, amount in request.resources.items():
            left = self.used[resource] - amount
            if left:
                self.used[resource] = left
            else:
                del self.used[resource]
        for port in request.rules.ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]
        self.reservation_pods -= self.reserves(request)
        for uuid in self.wholes.pop(uid, ()):
            if uuid in self.gpus and self.gpus[uuid].whole == uid:
                self.gpus[uuid].take_back()
            if uuid in self.gpus and self.gpus[uuid].reservation == uid:
                self.gpus[uuid].reservation = None
                self.restore_devices({other: held for other, held in self.wholes.items() if uuid in held})
        if self.reserved:
            self.place_reservations()
        self.touch()
        return request

    def add_reservation(self, reservation: Reservation) -> None:
        self._lift_reservations()
        self.reserved[reservation.key] = reservation
        self.place_reservations()
        self.touch()

    def remove_reservation(self, key: str) -> None:
        self._lift_reservations()
        del self.reserved[key]
        self.place_reservations()
        self.touch()

    def devices_of(self, uid: PodUID) -> tuple[DeviceUUID, ...]:
        return self.wholes.get(uid, ())

    def reassign_devices(self, recorded: Mapping[PodUID, tuple[DeviceUUID, ...]] | None = None) -> None:
        """Assign GPUs again: pods with `recorded` ones get exactly these, others keep theirs if they can.

        Which GPU a reservation pod holds is never assumed: it can be any of those that are shared.
        """
        recorded = recorded or {}
        self._lift_reservations()
        before, self.wholes = self.wholes, {}
        for gpu in self.gpus.values():
            gpu.whole = gpu.reservation = None
        self.restore_devices({uid: found for uid in recorded if (found := self.present(recorded[uid]))})
        others = [uid for uid in sorted(self.pods) if uid not in recorded and self.pods[uid].whole_gpus]
        others = [uid for uid in others if not self.reserves(self.pods[uid])]
        for uid in others:
            self._give_devices(self.pods[uid], before.get(uid, ()), only_these=True)
        for uid in others:
            self._give_devices(self.pods[uid], self.wholes.get(uid, ()))
        self.place_reservations()

    def assumes_wrongly(self, recorded: Mapping[PodUID, tuple[DeviceUUID, ...]]) -> bool:
        """Pods have other GPUs than those that are `recorded`, or than can be assumed for the others."""
        if any(self.devices_of(uid) != self.present(uuids) for uid, uuids in recorded.items()):
            return True
        return self._lacks_devices or any(
            self.reserves(self.pods[uid]) or any(self._has_others(self.gpus[uuid]) for uuid in self.present(uuids))
            for uid, uuids in self.wholes.items()
            if uid not in recorded
        )

    @property
    def _lacks_devices(self) -> bool:
        """A pod with whole GPUs has none recorded although one is free: others held them when it came."""
        asked = self.used.get(names.NVIDIA_GPU, 0) - self.reservation_pods
        found = sum(len(uuids) for uid, uuids in self.wholes.items() if not self.reserves(self.pods[uid]))
        return asked > found and any(gpu.takes_whole for gpu in self.gpus.values())

    def present(self, uuids: tuple[DeviceUUID, ...]) -> tuple[DeviceUUID, ...]:
        return tuple(uuid for uuid in uuids if uuid in self.gpus)

    def place_reservations(self) -> None:
        """Compute what the reservations hold beside the pods: to be called after any change of pods or GPUs."""
        if not self.reserved:
            return
        self._lift_reservations()
        leaving = {uid: self._held_by(uid) for kept in self.reserved.values() for uid in kept.after if uid in self.pods}
        for key in sorted(self.reserved):
            kept = self.reserved[key]
            for resource, amount in {PODS: 1, **kept.resources}.items():
                left = amount - _taken(leaving, kept.after, resource, amount)
                if left:
                    self.reserved_amounts[resource] = self.reserved_amounts.get(resource, 0) + left
                if resource == names.NVIDIA_GPU and left:
                    spare = [uuid for uuid, gpu in self.gpus.items() if gpu.takes_whole][:left]
                    self.reserved_devices[key] = tuple(spare)
                    for uuid in spare:
                        self.gpus[uuid].give_whole(key)

    def _lift_reservations(self) -> None:
        if not self.reserved:
            return
        for key, uuids in self.reserved_devices.items():
            for uuid in uuids:
                if uuid in self.gpus and self.gpus[uuid].whole == key:
                    self.gpus[uuid].take_back()
        self.reserved_amounts.clear()
        self.reserved_devices.clear()

    def _held_by(self, uid: PodUID) -> dict[str, int]:
        return {PODS: 1, **self.pods[uid].resources}

    def restore_devices(self, wholes: dict[PodUID, tuple[DeviceUUID, ...]]) -> None:
        """Record exactly these devices, whatever else uses the GPUs now."""
        self.wholes |= wholes
        for uid, uuids in wholes.items():
            for uuid in uuids:
                if uid in self.pods and self.reserves(self.pods[uid]):
                    self.gpus[uuid].reservation = max(uid, self.gpus[uuid].reservation or uid)
                else:
                    self.gpus[uuid].whole = uid

    def saved(self) -> SavedNode:
        return SavedNode(self.facts, tuple(gpu.facts for gpu in self.gpus.values()), self.ready, dict(self.wholes))

    def record(self) -> dict[str, object]:
        facts = self.facts
        return {
            "name": self.name,
            "facts": None
            if facts is None
            else [dict(facts.labels), facts.taints, facts.unschedulable, dict(facts.allocatable)],
            "ready": self.ready,
            "pods": [self.pods[uid] for uid in sorted(self.pods)],
            "used": self.used,
            "reservation pods": self.reservation_pods,
            "reserved": [_plain(self.reserved[key]) for key in sorted(self.reserved)],
            "reserved amounts": self.reserved_amounts,
            "reserved devices": self.reserved_devices,
            "ports": sorted((port.protocol, port.ip, port.port, count) for port, count in self.ports.items()),
            "wholes": self.wholes,
            "gpus": [gpu.record() for gpu in self.gpus.values()],
        }

    def _give_devices(self, request: Request, devices: tuple[DeviceUUID, ...], *, only_these: bool = False) -> None:
        """The kubelet chooses which GPUs a pod gets; until that is known any free ones are assumed."""
        uid = request.uid
        chosen = [u for u in devices if u in self.gpus and (self.gpus[u].whole == uid or self.gpus[u].takes_whole)]
        if only_these:
            chosen = [u for u in devices if u in self.gpus and self._can_keep(self.gpus[u])]
        else:
            spare = [u for u, gpu in self.gpus.items() if u not in chosen and gpu.takes_whole]
            chosen += spare[: max(0, request.whole_gpus - len(chosen))]
        for uuid in chosen:
            self.gpus[uuid].whole = uid
        if chosen:
            self.wholes[uid] = tuple(chosen)

    def _can_keep(self, gpu: GpuLedger) -> bool:
        """A pod that had the GPU has it still, though a share of it may be reserved for when that pod is gone."""
        return gpu.takes_whole or (
            gpu.facts.healthy and not gpu.held and bool(gpu.shares) and not self._has_others(gpu)
        )

    def _has_others(self, gpu: GpuLedger) -> bool:
        """Pods share it or have slices of it; a share that is reserved for a pod does not count."""
        shared = gpu.reservation is not None or any(reserved_for(key) not in self.reserved for key in gpu.shares)
        return shared or bool(gpu.slices)

    def reserves(self, request: Request) -> bool:
        """True for a pod that holds a GPU on behalf of its sharers."""
        return request.namespace == self._reservation_namespace and request.whole_gpus > 0


def _taken(leaving: dict[PodUID, dict[str, int]], after: tuple[PodUID, ...], resource: str, amount: int) -> int:
    """How much of an amount these terminating pods still hold; it is subtracted from what they can hold for others."""
    taken = 0
    for uid in after:
        held = leaving.get(uid, {})
        part = min(held.get(resource, 0), amount - taken)
        if part > 0:
            held[resource] -= part
            taken += part
    return taken


def reserved_share(key: str, number: int) -> str:
    """The key of a share that is reserved."""
    return f"{key}{_SHARE}{number}"


def reserved_for(share: str) -> str:
    """The reservation that this share is part of."""
    return share.rpartition(_SHARE)[0]


def _plain(reservation: Reservation) -> list[object]:
    return [reservation.key, dict(reservation.resources), reservation.slices, reservation.owner, reservation.after]
