"""The partitioners, found by the name given to `--driver`.

NVML is built in. Whoever starts the agent adds others (emulated GPUs), and other packages add theirs with an
entry point of the group `apportion.partitioners`, which names a function that takes a `Site` and returns a
`Partitioner`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from apportion.apis.identities import NodeName
from apportion.node.hardware.partitioner import Partitioner, Unavailable

ENTRY_POINTS = "apportion.partitioners"


@dataclass(frozen=True)
class Site:
    """Where a driver works: the node, and a folder that outlives the agent."""

    node: NodeName
    state_dir: Path


Factory = Callable[[Site], Partitioner]


def open_driver(name: str, site: Site, added: Mapping[str, Factory]) -> Partitioner:
    factories = all_drivers(added)
    factory = factories.get(name)
    if factory is None:
        raise Unavailable(f"--driver: {name!r} is unknown: choose one of {', '.join(sorted(factories))}")
    return factory(site)


def all_drivers(added: Mapping[str, Factory]) -> dict[str, Factory]:
    found: dict[str, Factory] = {"nvml": _nvml, **added}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found[entry.name] = entry.load()
    return found


def _nvml(_: Site) -> Partitioner:
    # The binding loads NVIDIA's library, which most machines do not have.
    from apportion.node.hardware.nvml.driver import NvmlDriver

    return NvmlDriver()
