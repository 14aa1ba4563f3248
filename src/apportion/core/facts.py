"""What the world tells the core: nodes, GPUs, and where a slice lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from apportion.apis.nodes import Taint
from apportion.core.catalog import Model

__all__ = ["GpuFacts", "NodeFacts", "SlicePlacement", "Taint"]


@dataclass(frozen=True)
class GpuFacts:
    """One GPU. In MIG mode it is sliced, otherwise it is shared or given whole."""

    uuid: str
    model: Model
    mig: bool
    healthy: bool = True


@dataclass(frozen=True)
class NodeFacts:
    """One node; `allocatable` has CPU in milli and everything else in whole units."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SlicePlacement:
    """One slice of a pod on its place; `container` and `index` name its claim."""

    container: str
    containers: tuple[str, ...]
    index: int
    profile: str
    gpu: str
    start: int
    size: int
