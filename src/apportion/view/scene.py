"""All GPUs with their slices, shares and pods, and pending pods with their reasons, as plain data for display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.accelerators import SHARING, Accelerator, NodeAccelerator
from apportion.apis.custom_resources.claims import IN_USE, AllocationClaim
from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.core.catalog import LARGEST_UNITS
from apportion.core.fleet_facts import HeldSlice
from apportion.core.ledger import GpuLedger
from apportion.core.node import MILLI, NodeState
from apportion.core.queues.amounts import NOTHING
from apportion.core.queues.tree import Problem
from apportion.core.refusals import wants_of
from apportion.view import queue_scene
from apportion.view.pods import message_of
from apportion.view.requests import read
from apportion.view.sharing import handed_over
from apportion.view.view import View

MemoryUse = Mapping[tuple[str, str], int]  # MiB that pods use of devices of one node, by the UIDs of both


@dataclass(frozen=True)
class ShownSlice:
    """One slice; `state` is its claim's. `used_mib` is the memory that its pod uses; None if that is unknown."""

    profile: str
    start: int
    size: int
    owner: str
    state: str
    used_mib: int | None = None


@dataclass(frozen=True)
class ShownShare:
    """What one pod has of a shared GPU, in thousandths and, where the memory of the GPU is known, in MiB; 0 if that is
    unknown. `bound` is False while the binder is still to bind the pod. `used_mib` is the memory that its processes
    use; None if that is unknown."""

    owner: str
    milli: int
    mib: int = 0
    bound: bool = True
    used_mib: int | None = None

    @property
    def exceeded(self) -> bool:
        return bool(self.mib) and self.used_mib is not None and self.used_mib > self.mib


@dataclass(frozen=True)
class ShownGpu:
    """One GPU of a node with its slices or shares.

    Without units it is not in MIG mode: `owner` has it whole and uses `used_mib` of it (None if that is unknown), or
    `shares` are parts of it and the pod `reservation` holds it for them. Where no agent reports GPUs, it is a `slot`,
    and its `uuid` is empty until it is known. Free is what a new share could get; of a GPU whose memory is unknown
    (`memory_mib` 0) in thousandths only. It `takes_shares` unless its reservation pod holds another GPU
    (`reserved_elsewhere`), or its node could not give it to containers.
    """

    uuid: str
    model: str
    units: int
    slices: tuple[ShownSlice, ...]
    owner: str = ""
    healthy: bool = True
    slot: str = ""
    shares: tuple[ShownShare, ...] = ()
    reservation: str = ""
    memory_mib: int = 0
    shared_mib: int = 0
    free_mib: int = 0
    free_milli: int = 0
    takes_shares: bool = True
    reserved_elsewhere: bool = False
    used_mib: int | None = None

    @property
    def device(self) -> str:
        """As the fleet knows it."""
        return self.slot or self.uuid

    @property
    def shared(self) -> bool:
        return bool(self.shares or self.reservation)


@dataclass(frozen=True)
class WaitingQueue:
    """A queue with pods that wait. Amounts are in milli-GPU."""

    name: QueueName
    pods: tuple[str, ...]
    used: int = 0
    share: int = 0
    quota: int = 0
    problem: Problem | None = None


@dataclass(frozen=True)
class Scene:
    """`notes` say what is wrong with a node; `waiting` are pods with their reasons, and `queues` those in which they
    wait, if there are several; `bound` are pods with their nodes, for readers who may not see the GPUs."""

    nodes: dict[str, list[ShownGpu]]
    notes: dict[str, str] = field(default_factory=dict)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    queues: list[WaitingQueue] = field(default_factory=list)
    bound: list[tuple[str, str]] = field(default_factory=list)


def of_namespace(view: View) -> Scene:
    """Pods alone, where nodes and GPUs may not be read: what each asks for, its node and its phase."""
    bound = []
    for pod in sorted(view.pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name)):
        request, _ = read(pod)
        wants = wants_of(request) if request is not None else ()
        if wants and pod.spec.node_name and not pod.terminal:
            asked = " + ".join(f"{count} x {name}" for name, count in wants)
            place = f"{asked} on node {pod.spec.node_name} ({pod.status.phase or 'Pending'})"
            bound.append((f"{pod.metadata.namespace}/{pod.metadata.name}", place))
    return Scene(nodes={}, waiting=list(_waiting(view)), bound=bound)


def scene(view: View) -> Scene:
    """The cluster as the scheduler sees it."""
    nodes = {node.name: node for node in view.fleet if node.gpus}
    claims: dict[str, AllocationClaim] = {claim.name: claim for claim in view.claims}
    without_shares = {node.metadata.name for node in view.accelerators if not node.takes_shares and view.fleet.sharing}
    used = {node.metadata.name: _memory_use(node) for node in view.accelerators if _is_ready(view, node)}
    fixed = {
        gpu.uuid: _fixed(view, gpu, used.get(node.metadata.name, {}))
        for node in view.accelerators
        for gpu in node.status.gpus
        if gpu.fixed
    }
    return Scene(
        nodes={
            name: [fixed.get(uuid) or _gpu(view, gpu, claims, used.get(name, {})) for uuid, gpu in node.gpus.items()]
            for name, node in nodes.items()
        },
        notes={name: note for name, node in nodes.items() if (note := _note(node, shares=name not in without_shares))},
        waiting=list(_waiting(view)),
        queues=_queues(view),
    )


def _queues(view: View) -> list[WaitingQueue]:
    """In the order of their names."""
    pods: dict[QueueName, list[str]] = {}
    for each in view.unplaced():
        request = each.reading.request
        if request is not None and request.scheduler_name in names.OUR_SCHEDULERS:
            pods.setdefault(request.queue, []).append(request.key)
    accounts = view.fleet.accounts
    tree = accounts.tree
    leaves = [name for name in tree.queues if not tree.children(name)]
    if not pods or view.queues.hidden or list(pods) == leaves:
        return []  # all of them wait in the only queue
    shares = queue_scene.entitlements(view).shares
    return [
        WaitingQueue(
            name,
            tuple(sorted(waiting)),
            accounts.used(name).gpu,
            shares.get(name, NOTHING).gpu,
            tree.queues[name].gpu.quota if name in tree else 0,
            tree.problem(name),
        )
        for name, waiting in sorted(pods.items())
    ]


def _is_ready(view: View, node: NodeAccelerator) -> bool:
    """An agent that is gone leaves its last report behind."""
    state = view.fleet.nodes.get(NodeName(node.metadata.name))
    return state is not None and state.ready


def _memory_use(node: NodeAccelerator) -> MemoryUse:
    return {(use.pod_uid, use.uuid): use.used_mib for use in node.status.memory_use}


def _gpu(view: View, gpu: GpuLedger, claims: Mapping[str, AllocationClaim], used: MemoryUse) -> ShownGpu:
    used = used if gpu.facts.healthy else {}  # the agent may have got no answer
    by_place = sorted(gpu.slices.items(), key=lambda entry: (entry[1].placement.start, entry[0]))
    slices = tuple(_slice(view, held, claims.get(key), used) for key, held in by_place)
    measured = gpu.facts.measured
    return ShownGpu(
        uuid=view.shares.uuid_of(gpu.uuid),
        model=gpu.facts.model.product_names[0] if gpu.facts.model.product_names else gpu.facts.model.id,
        units=gpu.grid.units if gpu.facts.mig else 0,
        slices=slices,
        owner=_pod_name(view, gpu.whole or ""),
        healthy=gpu.facts.healthy,
        slot=gpu.uuid if shared_gpus.is_slot(gpu.uuid) else "",
        shares=_shares(view, gpu, used),
        reservation=_pod_name(view, gpu.reservation or _reservation(view, gpu)),
        memory_mib=gpu.memory_mib if measured else 0,
        shared_mib=gpu.shared_mib if measured else 0,
        free_mib=gpu.free_mib if measured else 0,
        free_milli=gpu.left_milli,
        takes_shares=gpu.facts.takes_shares,
        reserved_elsewhere=view.accelerators.is_closed(gpu.uuid),
        used_mib=used.get((gpu.whole or "", gpu.uuid)),
    )


def _shares(view: View, gpu: GpuLedger, used: MemoryUse) -> tuple[ShownShare, ...]:
    """In the order of the names of their pods."""
    found = []
    for key, mib in gpu.shares.items():
        owner = view.fleet.shares[key].owner
        pod = view.pods.get(owner)
        found.append(
            ShownShare(
                owner=_pod_name(view, owner),
                milli=mib * MILLI // gpu.memory_mib if gpu.memory_mib else 0,
                mib=mib if gpu.facts.measured else 0,
                bound=pod is None or bool(pod.spec.node_name),
                used_mib=used.get((owner, gpu.uuid)),
            )
        )
    return tuple(sorted(found, key=lambda share: (share.owner, share.milli)))


def _reservation(view: View, gpu: GpuLedger) -> str:
    """The pod that is to hold the GPU and does not say yet that it does, or that holds another one."""
    pod = view.shares.reservation_of(view.fleet.group_on(gpu.uuid)) if gpu.shares else None
    return pod.metadata.uid if pod is not None else ""


def _slice(view: View, held: HeldSlice, claim: AllocationClaim | None, used: MemoryUse) -> ShownSlice:
    place = held.placement
    return ShownSlice(
        place.profile,
        place.start,
        place.size,
        _pod_name(view, held.owner),
        claim.state if claim else "",
        used.get((held.owner, claim.status.mig_uuid)) if claim else None,
    )


def _pod_name(view: View, uid: str) -> str:
    """namespace/name, the uid of a pod that is gone."""
    pod = view.pods.get(PodUID(uid))
    return f"{pod.metadata.namespace}/{pod.metadata.name}" if pod is not None else uid


def _fixed(view: View, gpu: Accelerator, used: MemoryUse) -> ShownGpu:
    """A GPU with static slices: its agent says which pod has which."""
    used = used if gpu.healthy else {}
    slices = tuple(
        ShownSlice(
            piece.profile,
            piece.start,
            piece.size,
            _pod_name(view, piece.pod_uid),
            IN_USE if piece.pod_uid else "",
            used.get((piece.pod_uid, piece.uuid)),
        )
        for piece in gpu.fixed
    )
    units = min(LARGEST_UNITS, max(piece.start + piece.size for piece in slices))
    return ShownGpu(gpu.uuid, gpu.model, units, slices, healthy=gpu.healthy)


def _note(node: NodeState, *, shares: bool) -> str:
    without_agent = all(shared_gpus.is_slot(uuid) for uuid in node.gpus)
    if not node.ready and not without_agent:
        return "the agent is not ready"
    if node.facts is not None and node.facts.unschedulable:
        return "cordoned"
    return "" if shares else f"takes no shares (condition {SHARING} of its NodeAccelerator)"


def _waiting(view: View) -> Iterator[tuple[str, str]]:
    """Pods of our schedulers without a node, with the message of their condition; including gated pods."""
    pods = sorted((each.pod for each in view.waiting), key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    for pod in pods:
        if pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            continue
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        current = view.pods.get(PodUID(pod.metadata.uid)) or pod
        reason = f"the pod has scheduling gates: {gates}" if gates else message_of(current)
        asked = view.shares.request_of(pod.uid)
        if asked is not None:
            waits = f"the pod waits for the binder, for node {asked.spec.selected_node}"
            reason = handed_over.told(current) or waits
        yield f"{pod.metadata.namespace}/{pod.metadata.name}", reason or "not processed yet"
