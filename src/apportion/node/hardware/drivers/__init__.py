"""The partitioners: one module each, found by the name given to `--driver`.

Other packages add theirs with an entry point of the group `apportion.partitioners`, which names a
function that takes a `Site` and returns a `Partitioner`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apportion.node.hardware.drivers.emulated import EmulatedDriver
from apportion.node.hardware.partitioner import Partitioner, Unavailable

ENTRY_POINTS = "apportion.partitioners"


@dataclass(frozen=True)
class Site:
    """Where a driver works: the node, and a folder that outlives the agent."""

    node: str
    state_dir: Path


Factory = Callable[[Site], Partitioner]


def names() -> list[str]:
    return sorted(_factories())


def open_driver(name: str, site: Site) -> Partitioner:
    factory = _factories().get(name)
    if factory is None:
        raise Unavailable(f"--driver: {name!r} is unknown: choose one of {', '.join(names())}")
    return factory(site)


def _factories() -> dict[str, Factory]:
    found: dict[str, Factory] = {"emulated": _emulated, "nvml": _nvml}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found[entry.name] = entry.load()
    return found


def _emulated(site: Site) -> Partitioner:
    return EmulatedDriver(site.node, site.state_dir)


def _nvml(_: Site) -> Partitioner:
    # The binding loads NVIDIA's library, which most machines do not have.
    from apportion.node.hardware.nvml.driver import NvmlDriver

    return NvmlDriver()
