"""The fleet and who waits, as a file: to decide elsewhere or later on what a cluster was.

Plain JSON with a version. It has what decisions need and nothing else: no environment variables, no annotations, no
images or commands. A fleet that was saved and loaded decides the same, under the policy that was saved with it: its
request mix is part of the file. A snapshot without a policy (only the running scheduler knows its mix) loads with a
policy that has learned nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from apportion.apis.errors import CatalogError, InputError
from apportion.apis.identities import DeviceUUID, NodeName, PodUID, QueueName
from apportion.apis.installation import Installation
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import POLICIES, Request
from apportion.core.catalog import Catalog, Model, check
from apportion.core.evictions.disruption_budgets import NO_BUDGETS, KnownBudgets, as_known
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import GpuFacts, HeldShare, HeldSlice, NodeFacts, Reservation
from apportion.core.groups import Gang
from apportion.core.node import NodeState
from apportion.core.placement.request_mix import Mix, SavedMix
from apportion.core.policies import FRAGMENTATION, Policy
from apportion.core.queues.amounts import RESOURCES
from apportion.core.queues.tree import Allowance, Queue, QueueTree
from apportion.core.volumes import Storage
from apportion.view.view import View

VERSION = 2


@dataclass(frozen=True)
class Loaded:
    """`waiting` are the pods without a node that could be read, of every scheduler."""

    fleet: Fleet
    waiting: tuple[Request, ...]
    policy: Policy


class _Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: DeviceUUID
    model: int  # its place in the list of models
    mig: bool = False
    healthy: bool = True
    measured: bool = True
    takes_shares: bool = True


class _Pod(msgspec.Struct, frozen=True, omit_defaults=True):
    request: Request
    devices: tuple[DeviceUUID, ...] = ()
    releasing: bool = False


class _Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """`facts` is None for a node that is gone while its pods or its report are still there."""

    name: NodeName
    facts: NodeFacts | None = None
    ready: bool = False
    gpus: tuple[_Gpu, ...] = ()
    pods: tuple[_Pod, ...] = ()


class _Queue(msgspec.Struct, frozen=True, omit_defaults=True):
    """`allowances` are quota, limit and weight (as numerator and denominator) of GPU, CPU and memory."""

    name: QueueName
    parent: QueueName
    priority: int
    created: str
    allowances: tuple[tuple[int, int, int, int], ...]
    preempt_min_runtime: int | None = None
    reclaim_min_runtime: int | None = None


class _Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    apportion_snapshot: int
    models: tuple[Model, ...] = ()
    nodes: tuple[_Node, ...] = ()
    slices: tuple[HeldSlice, ...] = ()
    shares: tuple[HeldShare, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    queues: tuple[_Queue, ...] = ()
    gangs: tuple[Gang, ...] = ()
    budgets: KnownBudgets = NO_BUDGETS
    namespaces: dict[str, dict[str, str]] = {}
    storage: Storage | None = None
    sharing: bool = True
    reservation_namespace: str = Installation.reservation_namespace
    waiting: tuple[Request, ...] = ()
    failed_nodes: dict[PodUID, tuple[NodeName, ...]] = {}
    policy: str = FRAGMENTATION
    mix: SavedMix | None = None


def save(view: View, policy: Policy | None = None) -> bytes:
    waiting = (each.reading.request for each in view.unplaced() if each.reading.problem is None)
    return save_fleet(view.fleet, [request for request in waiting if request is not None], policy)


def save_fleet(fleet: Fleet, waiting: Sequence[Request] = (), policy: Policy | None = None) -> bytes:
    models: dict[int, int] = {}  # by identity: equal models are one object, and they are large
    table: list[Model] = []
    for name in sorted(fleet.nodes):
        for gpu in fleet.nodes[name].gpus.values():
            if id(gpu.facts.model) not in models:
                models[id(gpu.facts.model)] = len(table)
                table.append(gpu.facts.model)
    plain = _Snapshot(
        apportion_snapshot=VERSION,
        models=tuple(table),
        nodes=tuple(_node(fleet, fleet.nodes[name], models) for name in sorted(fleet.nodes)),
        slices=tuple(fleet.slices[key] for key in sorted(fleet.slices)),
        shares=tuple(fleet.shares[key] for key in sorted(fleet.shares)),
        reservations=tuple(fleet.reservations[key] for key in sorted(fleet.reservations)),
        queues=tuple(_saved_queue(queue) for queue in fleet.accounts.tree.queues.values()),
        gangs=tuple(fleet.gangs[key] for key in sorted(fleet.gangs)),
        budgets=as_known(fleet.budgets, fleet.pod_nodes),
        namespaces={name: dict(labels) for name, labels in fleet.namespaces.items()},
        storage=fleet.storage,
        sharing=fleet.sharing,
        reservation_namespace=fleet.reservation_namespace,
        waiting=tuple(waiting),
        failed_nodes=fleet.failed_nodes,
        policy=policy.name if policy is not None else FRAGMENTATION,
        mix=policy.mix.save(request.uid for request in waiting) if policy is not None else None,
    )
    return msgspec.json.encode(plain, order="deterministic")


def load(data: bytes, catalog: Catalog | None = None) -> Loaded:
    """Raises InputError for what is no snapshot, or one of another version."""
    found = _decoded(data)
    fleet = Fleet(catalog or Catalog.shipped(), reservation_namespace=found.reservation_namespace)
    fleet.storage, fleet.sharing = found.storage, found.sharing
    fleet.accounts.set_tree(QueueTree(_loaded_queue(queue) for queue in found.queues))
    fleet.budgets, fleet.failed_nodes = found.budgets, found.failed_nodes
    for gang in found.gangs:
        fleet.set_gang(gang)
    for name, labels in found.namespaces.items():
        fleet.set_namespace(name, labels)
    for node in found.nodes:
        if node.facts is not None:
            fleet.set_node(node.facts)
        if node.gpus or node.ready:
            facts = [_gpu_facts(gpu, found.models[gpu.model]) for gpu in node.gpus]
            fleet.set_gpus(node.name, facts, ready=node.ready)
    for held in found.slices:
        fleet.add_slice(held.key, held.placement, held.owner, node=held.node, releasing=held.releasing)
    for share in found.shares:
        fleet.add_share(*share)
    for node in found.nodes:
        _add_pods(fleet, node)
    for reservation in found.reservations:
        fleet.reserve(reservation)
    mix = Mix.load(found.mix) if found.mix is not None else None
    return Loaded(fleet, found.waiting, Policy(found.policy, mix))


def _node(fleet: Fleet, node: NodeState, models: dict[int, int]) -> _Node:
    return _Node(
        name=node.name,
        facts=node.facts,
        ready=node.ready,
        gpus=tuple(
            _Gpu(
                gpu.uuid,
                models[id(gpu.facts.model)],
                gpu.facts.mig,
                gpu.facts.healthy,
                gpu.facts.measured,
                gpu.facts.takes_shares,
            )
            for gpu in node.gpus.values()
        ),
        pods=tuple(_Pod(node.pods[uid], node.devices_of(uid), uid in fleet.releasing) for uid in sorted(node.pods)),
    )


def _gpu_facts(gpu: _Gpu, model: Model) -> GpuFacts:
    return GpuFacts(gpu.uuid, model, gpu.mig, gpu.healthy, gpu.measured, gpu.takes_shares)


def _saved_queue(queue: Queue) -> _Queue:
    return _Queue(
        queue.name,
        queue.parent,
        queue.priority,
        queue.created,
        tuple((quota, limit, weight.numerator, weight.denominator) for quota, limit, weight in queue.allowances),
        queue.preempt_min_runtime,
        queue.reclaim_min_runtime,
    )


def _loaded_queue(saved: _Queue) -> Queue:
    gpu, cpu, memory = (Allowance(quota, limit, Fraction(*weight)) for quota, limit, *weight in saved.allowances)
    return Queue(
        saved.name,
        saved.parent,
        saved.priority,
        saved.created,
        gpu,
        cpu,
        memory,
        preempt_min_runtime=saved.preempt_min_runtime,
        reclaim_min_runtime=saved.reclaim_min_runtime,
    )


def _add_pods(fleet: Fleet, node: _Node) -> None:
    for pod in node.pods:
        fleet.add_pod(pod.request, node.name)
    fleet.set_devices(node.name, {pod.request.uid: pod.devices for pod in node.pods})
    for pod in node.pods:
        fleet.set_releasing(pod.request.uid, releasing=pod.releasing)


def _decoded(data: bytes) -> _Snapshot:
    try:
        found = msgspec.json.decode(data, type=_Snapshot)
    except msgspec.MsgspecError as error:
        raise InputError(
            "snapshot", data[:40], f"is not a snapshot of a fleet: {error}", code="InvalidSnapshot"
        ) from None
    if found.apportion_snapshot != VERSION:
        raise InputError(
            "snapshot", found.apportion_snapshot, f"this program reads version {VERSION}", code="InvalidSnapshot"
        )
    if found.policy not in POLICIES:
        raise InputError("snapshot", found.policy, "is not a known policy", code="InvalidSnapshot")
    if any(not 0 <= gpu.model < len(found.models) for node in found.nodes for gpu in node.gpus):
        raise InputError("snapshot", "models", "a GPU has an unknown model", code="InvalidSnapshot")
    _check(found)
    return found


def _check(found: _Snapshot) -> None:
    """Refuse geometry that no ledger can count, and queues without their numbers."""
    for queue in found.queues:
        valid = len(queue.allowances) == len(RESOURCES) and all(
            above >= 0 and below > 0 for *_, above, below in queue.allowances
        )
        if not valid:
            field = f"snapshot.queues[{queue.name}].allowances"
            fix = "must be quota, limit and weight, as a fraction that is not negative, of GPU, CPU and memory"
            raise InputError(field, queue.allowances, fix, code="InvalidSnapshot")
    for number, model in enumerate(found.models):
        try:
            check(model)
        except CatalogError as error:
            field = f"snapshot.models[{number}].{error.field.partition('].')[2]}"
            raise InputError(field, error.value, error.fix, code="InvalidSnapshot") from None
    for number, held in enumerate(found.slices):
        _check_placement(f"snapshot.slices[{number}].placement", held.placement)
    for reservation in found.reservations:
        for number, placement in enumerate(reservation.slices):
            _check_placement(f"snapshot.reservations[{reservation.key}].slices[{number}]", placement)
    for number, share in enumerate(found.shares):
        if share.mib < 0:
            raise InputError(
                f"snapshot.shares[{number}].mib", share.mib, "must not be negative", code="InvalidSnapshot"
            )


def _check_placement(field: str, placement: SlicePlacement) -> None:
    if placement.start < 0:
        raise InputError(f"{field}.start", placement.start, "must not be negative", code="InvalidSnapshot")
    if placement.size < 1:
        raise InputError(f"{field}.size", placement.size, "must be at least 1", code="InvalidSnapshot")
