"""Short ways to say a pod, a node and a fleet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from apportion.apis import names, profiles
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core.catalog import Catalog, Model
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts, Taint

CATALOG = Catalog.shipped()
A100 = "NVIDIA A100-PCIE-40GB"
H100 = "NVIDIA H100 80GB HBM3"
T4 = "Tesla T4"
LARGE = 1 << 50

_numbers = itertools.count()


def model(product: str = A100) -> Model:
    found = CATALOG.find(product)
    assert found is not None
    return found


def pod(name: str | None = None, *, namespace: str = "default", **spec: Any) -> Request:
    """A pod with one container `main`. Keywords: limits, cpu, slices, gpus, fraction, memory, labels,
    annotations, devices, uid; everything else goes into its spec."""
    name = name or f"pod-{next(_numbers)}"
    limits = dict(spec.pop("limits", {}))
    for profile, count in dict(spec.pop("slices", {})).items():
        limits[profiles.slice_resource(profile)] = count
    if gpus := spec.pop("gpus", 0):
        limits[names.NVIDIA_GPU] = gpus
    if cpu := spec.pop("cpu", 0):
        limits["cpu"] = cpu
    annotations = dict(spec.pop("annotations", {}))
    for key, annotation in (
        ("fraction", names.GPU_FRACTION),
        ("memory", names.GPU_SHARE_MEMORY),
        ("devices", names.GPU_FRACTION_DEVICES),
    ):
        if key in spec:
            annotations[annotation] = str(spec.pop(key))
    shared = names.GPU_FRACTION in annotations or names.GPU_SHARE_MEMORY in annotations
    wire = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": spec.pop("uid", f"uid-{namespace}-{name}"),
            "labels": spec.pop("labels", {}),
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": names.KAI_SCHEDULER if shared else names.DAS_SCHEDULER,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            **spec,
        },
    }
    return parse_pod(msgspec.convert(wire, Pod))


def node(
    name: str,
    *,
    cpu: int = 64_000,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    **allocatable: int,
) -> NodeFacts:
    offered = {"cpu": cpu, "memory": LARGE, "pods": 110, **allocatable}
    own = {names.MIG_CAPABLE_LABEL: "true", names.HOSTNAME_LABEL: name, **(labels or {})}
    return NodeFacts(name, own, tuple(taints), unschedulable, offered)


def add_node(
    fleet: Fleet,
    facts: NodeFacts,
    gpus: Iterable[tuple[str, bool]] = (),
    *,
    ready: bool = True,
) -> None:
    """A node with GPUs given as (product, MIG mode); its kubelet offers what they can hold."""
    offered = dict(facts.allocatable)
    pieces = []
    for index, (product, mig) in enumerate(gpus):
        kind = model(product)
        pieces.append(GpuFacts(f"{facts.name}-gpu{index}", kind, mig))
        if not mig:
            offered[names.NVIDIA_GPU] = offered.get(names.NVIDIA_GPU, 0) + 1
        for profile in kind.profiles if mig else ():
            resource = profiles.slice_resource(profile.name)
            offered[resource] = offered.get(resource, 0) + profile.most
    fleet.set_node(NodeFacts(facts.name, facts.labels, facts.taints, facts.unschedulable, offered))
    fleet.set_gpus(facts.name, pieces, ready=ready)


def fleet_of(*nodes: tuple[NodeFacts, Iterable[tuple[str, bool]]]) -> Fleet:
    fleet = Fleet(CATALOG)
    for facts, gpus in nodes:
        add_node(fleet, facts, gpus)
    return fleet


def mig_fleet(count: int = 2, *, gpus: int = 1, product: str = A100) -> Fleet:
    return fleet_of(*((node(f"node-{index}"), [(product, True)] * gpus) for index in range(count)))
