"""All nodes with their GPUs, pods and reservations, as decisions use them.

Facts arrive in any order (a claim before its GPU, a pod before its node); whatever cannot be attached yet
waits. Every change notes its inverse in a journal: between `checkpoint` and `rollback` or `release` something can be
tried out for the cost of what it changes, however large the fleet is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from apportion.apis.identities import NO_NODE, DeviceUUID, NodeName, PodUID
from apportion.apis.installation import Installation
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request
from apportion.core.catalog import Catalog
from apportion.core.evictions.disruption_budgets import NO_BUDGETS, Budgets
from apportion.core.fleet_facts import GpuFacts, HeldShare, HeldSlice, NodeFacts, Reservation, Taint
from apportion.core.groups import Gang
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState, SavedNode, reserved_share
from apportion.core.queues import charging
from apportion.core.queues.accounts import Accounts
from apportion.core.records import fleet_record
from apportion.core.records.holdings import Holding, Holdings
from apportion.core.records.journal import Journal, Mark
from apportion.core.records.label_counts import LabelCounts
from apportion.core.records.recent_changes import RecentChanges
from apportion.core.volumes import Storage, VolumeChoice

__all__ = ["Fleet", "GpuFacts", "HeldShare", "HeldSlice", "Mark", "NodeFacts", "NodeState", "Reservation", "Taint"]

_LOG_LENGTH = 1 << 14  # changes of nodes; a reader that is further behind looks at the whole fleet


class Fleet:
    """The state that decisions are made on. Iteration is in the order of node names.

    `reservation_namespace` is the namespace of the pods that hold shared GPUs.
    """

    def __init__(self, catalog: Catalog, *, reservation_namespace: str = Installation.reservation_namespace) -> None:
        self.catalog = catalog
        self.reservation_namespace = reservation_namespace
        self.nodes: dict[NodeName, NodeState] = {}
        self.pod_nodes: dict[PodUID, NodeName] = {}
        self.gpu_nodes: dict[DeviceUUID, NodeName] = {}
        self.apart: dict[PodUID, NodeName] = {}  # pods with required anti-affinity -> their node
        self.apart_labels: frozenset[str] = frozenset()  # label keys in their terms
        self.volume_users: dict[str, set[PodUID]] = {}  # volume claims (namespace/name) -> pods with a node
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.namespace_changes = 0  # how often they changed
        self.reservations: dict[str, Reservation] = {}
        self.ended_reservations: dict[str, Reservation] = {}  # by operations that can still be undone
        self.releasing: set[PodUID] = set()  # pods that are terminating and still hold their resources
        self.gangs: dict[str, Gang] = {}
        self.group_pods: dict[str, dict[PodUID, None]] = {}  # groups -> their pods with a node
        self.failed_nodes: dict[PodUID, tuple[NodeName, ...]] = {}  # pods -> where they could not be bound, latest last
        self.accounts = Accounts()
        self.budgets: Budgets = NO_BUDGETS
        self.storage: Storage | None = None
        self.sharing = True  # False if no component binds pods with a share of a GPU
        self.inventory = 0  # another number when nodes or GPUs come, go or change; the old one after a rollback
        self.stock = 0  # the same for what policies count: CPUs, and GPUs that are shared or given whole
        self.log: RecentChanges[NodeName] = RecentChanges(_LOG_LENGTH)  # names of nodes that changed
        self._label_counts = LabelCounts()
        self._reservation_owners: dict[str, set[str]] = {}  # owners -> keys of their reservations
        self._holdings = Holdings()
        self._journal = Journal()
        self._note = self._journal.note
        self._numbers = count(1)
        self._sorted: list[NodeName] | None = None

    def __iter__(self) -> Iterator[NodeState]:
        """Nodes that exist, by name."""
        if self._sorted is None:
            self._sorted = sorted(self.nodes)
        for name in self._sorted:
            node = self.nodes[name]
            if node.facts is not None:
                yield node

    @property
    def slices(self) -> Mapping[str, HeldSlice]:
        return self._holdings.slices

    @property
    def shares(self) -> Mapping[str, HeldShare]:
        return self._holdings.shares

    # Facts

    def set_node(self, facts: NodeFacts) -> None:
        node = self._node(facts.name)
        self._note(self._restore_facts, node.name, node.facts)
        node.facts = facts
        self._offer_changed(node)

    def set_gpus(self, node: NodeName, gpus: Sequence[GpuFacts], *, ready: bool) -> None:
        """Replace what is known of a node's GPUs. Slices and shares that are booked on them stay booked."""
        state = self._node(node)
        self._note(self._restore_gpus, node, state.saved())
        self._replace_gpus(state, gpus, ready=ready)
        state.reassign_devices()
        self._forget_if_empty(state)

    def remove_node(self, name: NodeName) -> None:
        """Forget a node. Pods that are still bound to it are remembered in case it comes back."""
        state = self.nodes.get(name)
        if state is None:
            return
        self._note(self._restore_node, name, state.saved())
        self._replace_gpus(state, (), ready=False)
        state.facts = None
        state.wholes = {}
        state.place_reservations()
        self._offer_changed(state)
        self._forget_if_empty(state)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, None when it is gone. They matter for affinity across namespaces."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.namespace_changes += 1

    # Pods

    def add_pod(self, request: Request, node: NodeName, devices: tuple[DeviceUUID, ...] = ()) -> None:
        """A pod that holds its node's resources: bound, or assumed to be. `devices` are its whole GPUs, if known."""
        known = self.pod_nodes.get(request.uid)
        if known is not None:
            state = self.nodes[known]
            same_devices = not devices or state.devices_of(request.uid) == devices
            if known == node and state.pods[request.uid] == request and same_devices:
                return
        evicted = known is not None and request.uid in self.releasing
        kept = self.nodes[node].devices_of(request.uid) if known == node and not devices else ()
        if known is not None:
            self.remove_pod(request.uid)
        keeps_all = bool(kept) and len(kept) == request.whole_gpus
        self._enter_pod(request, node, devices or kept, exactly=keeps_all)
        self._note(self._drop_pod, request.uid)
        if evicted:
            self.set_releasing(request.uid, releasing=True)

    def remove_pod(self, uid: PodUID) -> None:
        node = self.pod_nodes.get(uid)
        if node is None:
            return
        self.set_releasing(uid, releasing=False)
        state = self.nodes[node]
        self._note(self._restore_pod, state.pods[uid], node, state.devices_of(uid))
        self._drop_pod(uid)

    def take_away(self, uid: PodUID) -> None:
        """A pod with its slices and shares."""
        for held in self.slices_of(uid):
            self.remove_slice(held.key)
        for share in self.shares_of(uid):
            self.remove_share(share.key)
        self.remove_pod(uid)

    def set_devices(self, node: NodeName, devices: Mapping[PodUID, tuple[DeviceUUID, ...]]) -> None:
        """Which GPUs pods of a node hold by the kubelet's record: whole, or as a reservation for pods that share them.

        For other pods with whole GPUs any free ones are assumed.
        """
        state = self.nodes.get(node)
        known = {uid: devices[uid] for uid in sorted(devices) if state is not None and uid in state.pods}
        if state is None or not state.assumes_wrongly(known):
            return
        self._note(self._restore_gpus, node, state.saved())
        state.reassign_devices(known)
        state.touch()

    def set_releasing(self, uid: PodUID, *, releasing: bool) -> None:
        """A pod is being evicted or deleted: it holds its resources until it ends, and they can be reserved."""
        if (uid in self.releasing) == releasing or uid not in self.pod_nodes:
            return
        self._mark_releasing(uid, releasing)
        self._note(self._mark_releasing, uid, not releasing)

    def terminating(self, uid: PodUID) -> bool:
        """The cluster shows the pod as being deleted."""
        return uid in self.pod_nodes and self.nodes[self.pod_nodes[uid]].pods[uid].terminating

    # Queues and groups

    def set_gang(self, gang: Gang) -> None:
        self.gangs[gang.key] = gang

    def forget_gang(self, key: str) -> None:
        self.gangs.pop(key, None)

    def gang_of(self, request: Request) -> Gang:
        """The group of a pod; if nothing is known of it, one of its own."""
        return self.gangs.get(request.group_key) or Gang(request.group_key, created=request.created)

    # Reservations

    def reserve(self, reservation: Reservation) -> None:
        """Reserve capacity on a node. An earlier reservation with the same key is replaced."""
        if self.reservations.get(reservation.key) == reservation:
            return
        self.release_reservation(reservation.key)
        self._enter_reservation(reservation)
        self._note(self._drop_reservation, reservation.key)
        for number, placement in enumerate(reservation.slices):
            self.add_slice(f"{reservation.key}/{number}", placement, reservation.key, node=reservation.node)
        for number, (gpu, mib) in enumerate(reservation.shares):
            owner = PodUID(reservation.key)
            self.add_share(reserved_share(owner, number), gpu, mib, owner, node=reservation.node)

    def release_reservation(self, key: str) -> None:
        """There is no such reservation any more, whatever is undone later."""
        self.settle_reservation(key)
        reservation = self.reservations.get(key)
        if reservation is None:
            return
        for number in range(len(reservation.slices)):
            self.remove_slice(f"{key}/{number}")
        for number in range(len(reservation.shares)):
            self.remove_share(reserved_share(key, number))
        self._note(self._enter_reservation, reservation)
        self._drop_reservation(key)

    def end_reservation(self, key: str) -> None:
        """Release a reservation that `resume_reservation` can bring back, until its end is settled."""
        reservation = self.reservations[key]
        self.release_reservation(key)
        self._enter_ended(reservation)
        self._note(self._drop_ended, key)

    def resume_reservation(self, key: str) -> None:
        """Bring back an ended reservation, unless it was released or settled meanwhile."""
        reservation = self.ended_reservations.get(key)
        if reservation is not None:
            self.reserve(reservation)

    def settle_reservation(self, key: str) -> None:
        """The end of a reservation is final."""
        reservation = self.ended_reservations.get(key)
        if reservation is not None:
            self._drop_ended(key)
            self._note(self._enter_ended, reservation)

    def reserves_for(self, owner: str) -> bool:
        return owner in self._reservation_owners

    def reservations_for(self, owner: str) -> tuple[Reservation, ...]:
        return tuple(self.reservations[key] for key in sorted(self._reservation_owners.get(owner, ())))

    # Slices and shares

    def add_slice(
        self, key: str, placement: SlicePlacement, owner: str, *, node: NodeName = NO_NODE, releasing: bool = False
    ) -> None:
        """A slice that exists or is assumed, legal or not; `key` is its claim's name, `owner` its pod."""
        self._add(HeldSlice(key, placement, owner, node, releasing))

    def remove_slice(self, key: str) -> None:
        self._remove(self._holdings.slices.get(key))

    def holds(self, uid: PodUID) -> bool:
        """The pod holds slices or shares."""
        return self._holdings.known(uid)

    def slices_of(self, uid: PodUID) -> tuple[HeldSlice, ...]:
        return tuple(record for record in self._holdings.of_owner(uid) if isinstance(record, HeldSlice))

    def add_share(
        self, key: str, gpu: DeviceUUID, mib: int, owner: PodUID, group: str = "", node: NodeName = NO_NODE
    ) -> None:
        """A share of a GPU that a pod holds or is assumed to hold."""
        self._add(HeldShare(key, gpu, mib, owner, group, node))

    def remove_share(self, key: str) -> None:
        self._remove(self._holdings.shares.get(key))

    def shares_of(self, uid: PodUID) -> tuple[HeldShare, ...]:
        return tuple(record for record in self._holdings.of_owner(uid) if isinstance(record, HeldShare))

    def group_on(self, gpu: DeviceUUID) -> str:
        """The name of those who share a GPU; empty if nobody does."""
        node = self.gpu_nodes.get(gpu)
        keys = self.nodes[node].gpus[gpu].shares if node is not None else ()
        return next((group for key in sorted(keys) if (group := self.shares[key].group)), "")

    # Volumes

    def choose_volume(self, volume_claim: str, choice: VolumeChoice) -> None:
        """A volume, or a node to provision for, was chosen for a volume claim, and the cluster does not show it yet."""
        assert self.storage is not None
        self.forget_volume(volume_claim)
        self.storage.chosen[volume_claim] = choice
        self._note(self._take_back_volume, volume_claim)

    def forget_volume(self, volume_claim: str) -> None:
        """What was chosen was not carried out, or the cluster shows it now."""
        choice = self.storage.chosen.pop(volume_claim, None) if self.storage is not None else None
        if choice is not None:
            self._note(self._restore_volume, volume_claim, choice)

    # Trial changes

    def checkpoint(self) -> Mark:
        mark = self._journal.checkpoint()
        self._note(self._restore_numbers, self.inventory, self.stock)
        return mark

    def rollback(self, mark: Mark) -> None:
        """Undo everything since the mark. Marks set after it are gone too."""
        self._journal.rollback(mark)

    def release(self, mark: Mark) -> None:
        """Keep everything since the mark."""
        self._journal.release(mark)

    def record(self) -> bytes:
        """The whole state as bytes: equal states give equal bytes, however they came about."""
        return fleet_record.of(self, self._holdings.record())

    # Parts of the above, and inverses

    def _restore_numbers(self, inventory: int, stock: int) -> None:
        self.inventory, self.stock = inventory, stock

    def _node(self, name: NodeName) -> NodeState:
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = NodeState(name, self.log, self.reservation_namespace)
            self._sorted = None
        return state

    def _offer_changed(self, state: NodeState) -> None:
        offer, facts = state.offer(), state.all_facts()
        if facts != state.known_facts:
            state.known_facts = facts
            self.inventory = next(self._numbers)
        if offer != state.offered:
            state.offered = offer
            self.stock = next(self._numbers)
        state.touch()

    def _forget_if_empty(self, state: NodeState) -> None:
        if state.facts is None and not state.gpus and not state.pods and not state.reserved and not state.ready:
            self.nodes.pop(state.name, None)
            self._sorted = None

    def _replace_gpus(self, state: NodeState, gpus: Sequence[GpuFacts], *, ready: bool) -> None:
        for uuid in state.gpus:
            if self.gpu_nodes.get(uuid) == state.name:
                del self.gpu_nodes[uuid]
                self._holdings.detach(uuid)
        before, state.gpus = state.gpus, {facts.uuid: GpuLedger(facts) for facts in gpus}
        state.ready = ready
        for uuid, gpu in state.gpus.items():
            self.gpu_nodes[uuid] = state.name
            self._holdings.attach(gpu, state.name)
        for record in self._holdings.on_gpus({*before, *state.gpus}):
            self._charge_owner(record)
        self._offer_changed(state)

    # A node that was forgotten and came back is another object, so inverses go by name.

    def _restore_facts(self, name: NodeName, facts: NodeFacts | None) -> None:
        state = self._node(name)
        state.facts = facts
        self._offer_changed(state)
        self._forget_if_empty(state)

    def _restore_gpus(self, name: NodeName, offer: SavedNode) -> None:
        state = self._node(name)
        self._replace_gpus(state, offer.gpus, ready=offer.ready)
        state.wholes = {}
        state.restore_devices(offer.wholes)
        state.place_reservations()
        self._forget_if_empty(state)

    def _restore_node(self, name: NodeName, offer: SavedNode) -> None:
        self._node(name).facts = offer.facts
        self._restore_gpus(name, offer)

    def _restore_pod(self, request: Request, node: NodeName, devices: tuple[DeviceUUID, ...]) -> None:
        self._enter_pod(request, node, devices, exactly=True)

    def _enter_pod(self, request: Request, node: NodeName, devices: tuple[DeviceUUID, ...], *, exactly: bool) -> None:
        self._node(node).add_pod(request, devices, exactly=exactly)
        self.pod_nodes[request.uid] = node
        if request.terminating:
            self.releasing.add(request.uid)
        if request.rules.anti_affinity:
            self.apart[request.uid] = node
            self.apart_labels = self._label_counts.change(request, 1)
        for claim in request.volume_claims:
            self.volume_users.setdefault(f"{request.namespace}/{claim}", set()).add(request.uid)
        self.group_pods.setdefault(request.group_key, {})[request.uid] = None
        self._charge(request)

    def _drop_pod(self, uid: PodUID) -> None:
        state = self.nodes[self.pod_nodes.pop(uid)]
        request = state.remove_pod(uid)
        if self.apart.pop(uid, None) is not None:
            self.apart_labels = self._label_counts.change(request, -1)
        for claim in request.volume_claims:
            users = self.volume_users[f"{request.namespace}/{claim}"]
            users.discard(uid)
            if not users:
                del self.volume_users[f"{request.namespace}/{claim}"]
        self.releasing.discard(uid)
        members = self.group_pods[request.group_key]
        del members[uid]
        if not members:
            del self.group_pods[request.group_key]
        self.accounts.set_charge(uid, None)
        self._forget_if_empty(state)

    def _charge(self, request: Request) -> None:
        """Charge a pod with a node to its queue."""
        self.accounts.set_charge(request.uid, charging.of_pod(self, request))

    def _charge_owner(self, record: Holding) -> None:
        node = self.pod_nodes.get(PodUID(record.owner))
        if node is not None:
            self._charge(self.nodes[node].pods[PodUID(record.owner)])
            self.nodes[node].touch()  # it need not be the one that has the GPU

    def _mark_releasing(self, uid: PodUID, releasing: bool) -> None:  # noqa: FBT001
        (self.releasing.add if releasing else self.releasing.discard)(uid)
        state = self.nodes[self.pod_nodes[uid]]
        self._charge(state.pods[uid])
        state.touch()

    def _enter_reservation(self, reservation: Reservation) -> None:
        self.accounts.set_charge(f"reservation/{reservation.key}", reservation.charge)
        self.reservations[reservation.key] = reservation
        self._reservation_owners.setdefault(reservation.owner, set()).add(reservation.key)
        self._node(reservation.node).add_reservation(reservation)

    def _drop_reservation(self, key: str) -> None:
        reservation = self.reservations.pop(key)
        self.accounts.set_charge(f"reservation/{key}", None)
        self._reservation_owners[reservation.owner].discard(key)
        if not self._reservation_owners[reservation.owner]:
            del self._reservation_owners[reservation.owner]
        state = self.nodes[reservation.node]
        state.remove_reservation(key)
        self._forget_if_empty(state)

    def _enter_ended(self, reservation: Reservation) -> None:
        self.ended_reservations[reservation.key] = reservation

    def _drop_ended(self, key: str) -> None:
        del self.ended_reservations[key]

    def _take_back_volume(self, volume_claim: str) -> None:
        assert self.storage is not None
        del self.storage.chosen[volume_claim]

    def _restore_volume(self, volume_claim: str, choice: VolumeChoice) -> None:
        assert self.storage is not None
        self.storage.chosen[volume_claim] = choice

    def _add(self, record: Holding) -> None:
        known = self._holdings.get(record.key)
        if known == record:
            return
        self._remove(known)
        self._enter(record)
        self._note(self._leave, record)

    def _remove(self, record: Holding | None) -> None:
        if record is not None:
            self._leave(record)
            self._note(self._enter, record)

    def _enter(self, record: Holding) -> None:
        self._holdings.add(record)
        self._touch_home(record.gpu)
        self._charge_owner(record)

    def _leave(self, record: Holding) -> None:
        self._holdings.remove(record)
        self._touch_home(record.gpu)
        self._charge_owner(record)

    def _touch_home(self, gpu: DeviceUUID) -> None:
        home = self.gpu_nodes.get(gpu)
        if home is not None:
            state = self.nodes[home]
            state.place_reservations()
            state.touch()
