"""A scenario's nodes and running jobs as a fleet. This module and `decisions` are all that knows the core's API."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from apportion.apis import names, profiles, quantity
from apportion.apis.custom_resources.claims import claim_name
from apportion.apis.errors import InputError
from apportion.apis.identities import DeviceUUID, NodeName, QueueName
from apportion.apis.nodes import Taint
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import DEFAULT_QUEUE, Request
from apportion.core.catalog import Catalog, Model
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts, NodeState
from apportion.core.groups import Gang
from apportion.core.ledger import GpuLedger
from apportion.core.node import CPU, PODS
from apportion.core.operations import share_key
from apportion.core.placement import slice_search
from apportion.core.queues.tree import FREE, Allowance, Queue, QueueTree
from apportion.lab.scenarios import checks, notation
from apportion.lab.scenarios.schema import (
    NODE_PODS,
    Job,
    QueueAllowance,
    Scenario,
    ScenarioGpus,
    ScenarioNode,
    as_tuple,
)

MEMORY = "memory"


def build(scenario: Scenario, requests: Mapping[str, tuple[Request, ...]]) -> Fleet:
    """The fleet before anything is decided; `requests` are the pods of each job."""
    fleet = Fleet(Catalog.shipped())
    mig = checks.asks_for_slices(scenario)
    for name, node in checks.node_names(scenario).items():
        _add_node(fleet, NodeName(name), node, mig=mig)
    fleet.accounts.set_tree(_queues(scenario))
    for number, job in enumerate(scenario.jobs):
        first = requests[job.name][0]
        fleet.set_gang(Gang(first.group_key, job.min or job.pods, created=f"{number:06}"))
    running = [job for job in scenario.jobs if job.on is not None]
    for job in sorted(running, key=lambda job: job.device is None):  # those that name their GPUs come first
        for request, name in zip(requests[job.name], job.nodes(), strict=True):
            _add_running(fleet, fleet.nodes[NodeName(name)], job, request)
    for job in scenario.jobs:
        _add_claims(fleet, job, requests[job.name][0])
    return fleet


def _queues(scenario: Scenario) -> QueueTree:
    found = [
        Queue(
            QueueName(name),
            QueueName(queue.parent),
            queue.priority,
            f"{number:06}",
            _allowance(queue, 1000),
            _allowance(queue.cpu, 1000),
            _allowance(queue.memory, 10**9),
        )
        for number, (name, queue) in enumerate(scenario.queues.items())
    ]
    unlimited = Queue(DEFAULT_QUEUE, gpu=FREE)
    return QueueTree((*found, *(() if DEFAULT_QUEUE in scenario.queues else (unlimited,))))


def _allowance(given: QueueAllowance, unit: int) -> Allowance:
    quota, limit = (-1 if value == -1 else int(Fraction(str(value)) * unit) for value in (given.quota, given.limit))
    return Allowance(quota, limit, Fraction(str(given.weight)))


def device_name(node: str, index: int) -> DeviceUUID:
    return DeviceUUID(f"{node}/{index}")


def claim_names(request: Request) -> list[str]:
    """The claims of its slices, in the order in which it asks for them."""
    return [claim_name(request.uid, want.container, want.index) for want in request.slices]


def _add_node(fleet: Fleet, name: NodeName, node: ScenarioNode, *, mig: bool) -> None:
    field = f"nodes.{name}"
    gpus = _gpus(fleet.catalog, name, node, mig=mig)
    taints = tuple(msgspec.convert(notation.taint(text, f"{field}.taints"), Taint) for text in node.taints)
    labels = {names.HOSTNAME_LABEL: name, **_gpu_labels(gpus), **node.labels}
    fleet.set_node(NodeFacts(name, labels, taints, node.cordoned, _allocatable(node, gpus, field)))
    fleet.set_gpus(name, gpus, ready=node.agent_ready)
    for piece in node.foreign:
        gpu = _device(fleet.nodes[name], piece.device, f"{field}.foreign")
        key = f"foreign/{gpu.uuid}/{piece.start}/{piece.size}"
        fleet.add_slice(key, SlicePlacement(gpu.uuid, piece.profile, piece.start, piece.size), "")


def _gpus(catalog: Catalog, name: str, node: ScenarioNode, *, mig: bool) -> list[GpuFacts]:
    entries = [ScenarioGpus(count=node.gpus)] if isinstance(node.gpus, int) else node.gpus
    found: list[GpuFacts] = []
    for entry in entries:
        model = _model(catalog, entry.model or node.model, entry.memory or node.memory, f"nodes.{name}.model")
        said = entry.mig if entry.mig is not None else node.mig
        sliced = bool(model.profiles) and mig if said is None else said
        if sliced and not model.profiles:
            raise InputError(f"nodes.{name}.mig", sliced, f"{model.id} has no MIG profiles: say mig: false")
        for _ in range(entry.count):
            index = len(found)
            found.append(GpuFacts(device_name(name, index), model, sliced, index not in node.unhealthy))
    return found


def _model(catalog: Catalog, product: str, memory: int | None, field: str) -> Model:
    model = catalog.find(product, memory)
    if model is None:
        known = ", ".join(each.product_names[0] for each in catalog)
        raise InputError(field, product, f"no such GPU model is known; models are {known}")
    if memory is None or memory == model.memory_mib:
        return model
    return msgspec.structs.replace(model, id=f"{model.id} with {memory} MiB", memory_mib=memory)


def _gpu_labels(gpus: list[GpuFacts]) -> dict[str, str]:
    if not gpus:
        return {}
    model = gpus[0].model
    labels = {
        names.GPU_PRODUCT_LABEL: model.product_names[0].replace(" ", "-"),
        names.GPU_COUNT_LABEL: str(len(gpus)),
        names.GPU_MEMORY_LABEL: str(model.memory_mib),
    }
    return labels | ({names.MIG_CAPABLE_LABEL: "true"} if any(gpu.model.profiles for gpu in gpus) else {})


def _allocatable(node: ScenarioNode, gpus: list[GpuFacts], field: str) -> dict[str, int]:
    """What the kubelet offers: by its GPUs, unless `capacity` says otherwise."""
    offered: dict[str, int] = {PODS: NODE_PODS}
    for gpu in gpus:
        if not gpu.mig:
            offered[names.NVIDIA_GPU] = offered.get(names.NVIDIA_GPU, 0) + 1
        for profile in gpu.model.profiles if gpu.mig else ():
            resource = profiles.slice_resource(profile.name)
            offered[resource] = offered.get(resource, 0) + profile.most
    said = {CPU: node.cpu, MEMORY: node.host_memory, **node.capacity}
    for resource, amount in said.items():
        try:
            offered[resource] = quantity.milli(amount) if resource == CPU else quantity.whole(amount)
        except InputError as error:
            raise InputError(f"{field}.capacity.{resource}", amount, error.fix) from None
    return offered


def _add_running(fleet: Fleet, node: NodeState, job: Job, request: Request) -> None:
    field = f"jobs.{job.name}"
    indices = () if job.device is None else as_tuple(job.device)
    named = tuple(_device(node, index, f"{field}.device") for index in indices)
    if request.slices:
        _add_slices(fleet, node, job, request, named)
    if request.share is not None:
        for number, gpu in enumerate(named or _room_for_share(node, job, request)):
            fleet.add_share(share_key(request.uid, number), gpu.uuid, request.share.mib_on(gpu.memory_mib), request.uid)
    fleet.add_pod(request, node.name, tuple(gpu.uuid for gpu in named) if request.whole_gpus else ())
    if node.gpus and len(node.devices_of(request.uid)) != request.whole_gpus:
        raise InputError(f"{field}.on", node.name, f"has no {request.whole_gpus} free GPUs for it: name another node")


def _add_slices(fleet: Fleet, node: NodeState, job: Job, request: Request, named: tuple[GpuLedger, ...]) -> None:
    """On the places that the job names, else on the first that are free."""
    gpus = list(named) or list(node.gpus.values())
    wants = [want.profile for want in request.slices]
    if job.start is None:
        found = slice_search.arrange([(gpu.grid, gpu.state) for gpu in gpus], wants, slice_search.first_place)
        places = [(gpus[index], start) for index, start in found] if found is not None else []
    else:
        starts = as_tuple(job.start)
        places = list(zip(gpus * len(wants) if len(gpus) == 1 else gpus, starts, strict=False))
    if len(places) != len(wants):
        raise InputError(f"jobs.{job.name}.on", node.name, f"has no free placement for {', '.join(wants)}")
    for key, want, (gpu, start) in zip(claim_names(request), request.slices, places, strict=True):
        shape = gpu.grid.shape(want.profile)
        if shape is None or not gpu.takes_slices or not gpu.grid.legal(gpu.state, shape, start):
            raise InputError(f"jobs.{job.name}.start", start, f"{gpu.uuid} has no free placement for {want.profile}")
        fleet.add_slice(key, SlicePlacement(gpu.uuid, want.profile, start, shape.size), request.uid)


def _room_for_share(node: NodeState, job: Job, request: Request) -> list[GpuLedger]:
    share = request.share
    assert share is not None
    fitting = [gpu for gpu in node.shareable() if gpu.left_after(share) is not None]
    if len(fitting) < share.devices:
        raise InputError(f"jobs.{job.name}.on", node.name, "its GPUs have no room for the share: name another node")
    return fitting[: share.devices]


def _add_claims(fleet: Fleet, job: Job, request: Request) -> None:
    """Claims of a pod that is not bound; they may differ from what it asks for now."""
    for claim in job.claims:
        field = f"jobs.{job.name}.claims"
        gpu = _device(fleet.nodes[NodeName(claim.node)], claim.device, f"{field}.device")
        shape = gpu.grid.shape(claim.profile)
        if shape is None:
            raise InputError(f"{field}.profile", claim.profile, f"{gpu.facts.model.id} has no such profile")
        key = claim_name(request.uid, request.slices[0].container if request.slices else "main", claim.index)
        placement = SlicePlacement(gpu.uuid, claim.profile, claim.start, shape.size)
        fleet.add_slice(key, placement, request.uid, node=NodeName(claim.node))


def _device(node: NodeState, index: int, field: str) -> GpuLedger:
    gpus = list(node.gpus.values())
    if index >= len(gpus):
        raise InputError(field, index, f"node {node.name} has {len(gpus)} GPUs, counted from 0")
    return gpus[index]
