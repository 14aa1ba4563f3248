"""What nodes and their agents report, as facts of a fleet.

Everyone who decides on a fleet reads the same objects in the same way: a report that cannot be read is logged
and left out, so that one odd node takes nothing from the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from apportion.apis.accelerators import Accelerator, NodeAccelerator
from apportion.apis.errors import ApportionError, InputError
from apportion.apis.nodes import Node
from apportion.core.catalog import Catalog, Model
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts, SlicePlacement

log = logging.getLogger(__name__)


class Foreign(NamedTuple):
    """A slice that we did not make; older agents do not tell its profile."""

    gpu: str
    start: int
    size: int
    profile: str

    @property
    def key(self) -> str:
        return f"foreign/{self.gpu}/{self.start}/{self.size}"  # no claim can have this name


class GpuReader:
    """GPUs as agents report them; each geometry is worked out once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._models: dict[tuple[object, ...], Model] = {}

    def facts(self, accelerator: NodeAccelerator) -> tuple[GpuFacts, ...]:
        found = []
        for gpu in accelerator.status.gpus:
            try:
                model = self._model(gpu)
            except ApportionError as error:
                log.error("GPU %s of node %s is left out: %s", gpu.uuid, accelerator.metadata.name, error)  # noqa: TRY400
                continue
            found.append(GpuFacts(gpu.uuid, model, gpu.mig_enabled, gpu.healthy))
        return tuple(found)

    def _model(self, gpu: Accelerator) -> Model:
        places = tuple((profile.name, profile.size, tuple(profile.starts), profile.limit) for profile in gpu.profiles)
        key = (gpu.model, gpu.memory_mib, places)
        if key not in self._models:
            base = self._catalog.find(gpu.model, gpu.memory_mib or None)
            self._models[key] = Model.from_discovery(gpu.model, gpu.memory_mib, gpu.profiles, base)
        return self._models[key]


def node_facts(node: Node) -> NodeFacts:
    try:
        allocatable = node.allocatable()
    except InputError as error:
        log.error("node %s offers nothing: %s", node.metadata.name, error)  # noqa: TRY400
        allocatable = {}
    spec = node.spec
    return NodeFacts(node.metadata.name, node.metadata.labels, tuple(spec.taints), spec.unschedulable, allocatable)


def foreign_slices(accelerator: NodeAccelerator) -> tuple[Foreign, ...]:
    gpus = accelerator.status.gpus
    return tuple(Foreign(gpu.uuid, it.start, it.size, it.profile) for gpu in gpus for it in gpu.foreign)


def block_foreign(fleet: Fleet, old: Iterable[Foreign], new: Iterable[Foreign]) -> None:
    """Such slices hold their places and belong to no pod; with its profile one counts for limits too."""
    after = set(new)
    for piece in set(old) - after:
        fleet.remove_slice(piece.key)
    for piece in after:
        fleet.add_slice(piece.key, SlicePlacement(piece.gpu, piece.profile, piece.start, piece.size), "")
