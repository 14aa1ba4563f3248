"""All GPUs with their slices and pods, and pending pods with their reasons, as plain data for display."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from apportion.apis import names
from apportion.apis.custom_resources.accelerators import Accelerator
from apportion.apis.custom_resources.claims import IN_USE
from apportion.apis.identities import DeviceUUID, PodUID, QueueName
from apportion.apis.placements import SlicePlacement
from apportion.core.catalog import LARGEST_UNITS
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState
from apportion.core.queues.amounts import NOTHING
from apportion.core.queues.tree import Problem
from apportion.core.refusals import wants_of
from apportion.view import queue_scene
from apportion.view.pods import message_of
from apportion.view.requests import read
from apportion.view.view import View


@dataclass(frozen=True)
class ShownSlice:
    """One slice; `state` is its claim's."""

    profile: str
    start: int
    size: int
    owner: str
    state: str


@dataclass(frozen=True)
class ShownGpu:
    """One GPU of a node with its slices.

    Without units it is not in MIG mode: `owner` has it whole, or holds it for pods that share it (`reserved`).
    """

    uuid: DeviceUUID
    model: str
    units: int
    slices: tuple[ShownSlice, ...]
    owner: str = ""
    healthy: bool = True
    reserved: bool = False


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
    states: dict[str, str] = {claim.name: claim.state for claim in view.claims}
    fixed = {gpu.uuid: _fixed(view, gpu) for node in view.accelerators for gpu in node.status.gpus if gpu.fixed}
    return Scene(
        nodes={
            name: [fixed.get(uuid) or _gpu(view, gpu, states) for uuid, gpu in node.gpus.items()]
            for name, node in nodes.items()
        },
        notes={name: note for name, node in nodes.items() if (note := _note(node))},
        waiting=list(_waiting(view)),
        queues=_queues(view),
    )


def _queues(view: View) -> list[WaitingQueue]:
    """In the order of their names."""
    pods: dict[QueueName, list[str]] = {}
    for each in view.waiting:
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


def _gpu(view: View, gpu: GpuLedger, states: dict[str, str]) -> ShownGpu:
    by_place = sorted(gpu.slices.items(), key=lambda entry: (entry[1].placement.start, entry[0]))
    slices = tuple(_slice(held.placement, _pod_name(view, held.owner), states.get(key, "")) for key, held in by_place)
    return ShownGpu(
        uuid=gpu.uuid,
        model=gpu.facts.model.product_names[0] if gpu.facts.model.product_names else gpu.facts.model.id,
        units=gpu.grid.units if gpu.facts.mig else 0,
        slices=slices,
        owner=_pod_name(view, gpu.whole or gpu.reservation or ""),
        healthy=gpu.facts.healthy,
        reserved=gpu.whole is None and gpu.reservation is not None,
    )


def _slice(placement: SlicePlacement, owner: str, state: str) -> ShownSlice:
    return ShownSlice(placement.profile, placement.start, placement.size, owner, state)


def _pod_name(view: View, uid: str) -> str:
    """namespace/name, the uid of a pod that is gone."""
    pod = view.pods.get(PodUID(uid))
    return f"{pod.metadata.namespace}/{pod.metadata.name}" if pod is not None else uid


def _fixed(view: View, gpu: Accelerator) -> ShownGpu:
    """A GPU with static slices: its agent says which pod has which."""
    slices = tuple(
        ShownSlice(
            piece.profile, piece.start, piece.size, _pod_name(view, piece.pod_uid), IN_USE if piece.pod_uid else ""
        )
        for piece in gpu.fixed
    )
    units = min(LARGEST_UNITS, max(piece.start + piece.size for piece in slices))
    return ShownGpu(gpu.uuid, gpu.model, units, slices, healthy=gpu.healthy)


def _note(node: NodeState) -> str:
    if not node.ready:
        return "the agent is not ready"
    return "cordoned" if node.facts is not None and node.facts.unschedulable else ""


def _waiting(view: View) -> Iterator[tuple[str, str]]:
    """Pods of our schedulers without a node, with the message of their condition; including gated pods."""
    pods = sorted((each.pod for each in view.waiting), key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    for pod in pods:
        if pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            continue
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        current = view.pods.get(PodUID(pod.metadata.uid)) or pod
        reason = f"the pod has scheduling gates: {gates}" if gates else message_of(current)
        yield f"{pod.metadata.namespace}/{pod.metadata.name}", reason or "not processed yet"
