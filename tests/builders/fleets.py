"""Nodes and GPUs as the deciding code sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from apportion.apis import names, profiles
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts, Taint
from tests.builders.accelerators import A100, CATALOG, model

LARGE = 1 << 50


def node_facts(
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
    return fleet_of(*((node_facts(f"node-{index}"), [(product, True)] * gpus) for index in range(count)))
