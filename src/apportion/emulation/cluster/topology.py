"""The topology of an embedded cluster: pools of nodes with emulated GPUs, read from a YAML file.

pools:
  - name: a100
    nodes: 2
    labels: {node-pool: small}
    taints: [{key: gpu, value: "yes", effect: NoSchedule}]
    zones: [a, b]                 # nodes take them in turn
    gpus:
      - {product: NVIDIA A100-PCIE-40GB, count: 2}
      - {product: NVIDIA-H200, count: 4, memoryMiB: 71680, layout: {2g.20gb: 3, 1g.10gb: 1}}
sharing: true                     # install GPU sharing too, as `apportion up --sharing` does

A layout defines static slices; it has any form of `run.ai/mig.config` and becomes that annotation.
A kind cluster file together with values of fake-gpu-operator are read as well: see `kind_files`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import yaml

from apportion.apis import migconfig, names, profiles
from apportion.apis.errors import InputError
from apportion.cluster import input_files
from apportion.core import layouts
from apportion.core.catalog import Catalog, Model
from apportion.emulation.cluster import kind_files, topology_limits
from pocketkube.node_pools import NodePlan, Pool


class TopologyError(ValueError):
    """A topology file that cannot be used; the text names the field, what is wrong and the fix."""


class PoolGpus(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """GPUs of one product in a node. Without `memoryMiB` the catalogue's memory holds.

    In MIG mode they are cut as `layout` says, or on demand if there is none; without `mig` they are in MIG mode if the
    model supports it.
    """

    product: str = "NVIDIA A100-PCIE-40GB"
    count: int = 2
    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")
    mig: bool | None = None
    layout: list[Any] | dict[Any, Any] = []

    @property
    def sliced(self) -> bool:
        """In MIG mode; by default if the model supports it."""
        model = Catalog.shipped().find(self.product, self.memory_mib)
        return bool(model and model.profiles) if self.mig is None else self.mig

    def check(self, field: str) -> None:
        """Raises TopologyError if no node could have these GPUs."""
        if self.mig and not self.model(field).profiles:
            raise TopologyError(f"{field}.mig: {self.product!r} does not support MIG: remove the field, or use false")
        self.cuts(field)

    def model(self, field: str) -> Model:
        found = Catalog.shipped().find(self.product, self.memory_mib)
        if found is None:
            known = ", ".join(sorted(model.id for model in Catalog.shipped()))
            raise TopologyError(
                f"{field}.product: {self.product!r} is not a known GPU model: use the product name of the driver, or "
                f"one of {known}"
            )
        return found

    def cuts(self, field: str) -> layouts.Cuts:
        """Where the slices of the layout lie on each GPU."""
        model = self.model(field)
        try:
            entries = migconfig.read_devices(self.layout, f"{field}.layout")
            return layouts.lay_out(model, entries, f"{field}.layout") if entries else ()
        except InputError as error:
            raise TopologyError(str(error)) from None


class GpuPool(Pool):
    """Nodes that are alike, with the GPUs that each of them has."""

    gpus: list[PoolGpus] = []

    def extra_labels(self) -> dict[str, str]:
        return _gpu_labels(self.gpus) if self.gpus else {}

    def extra_annotations(self) -> dict[str, str]:
        if not self.gpus:
            return {}
        listed = json.dumps([_gpu_entry(entry) for entry in self.gpus], separators=(",", ":"))
        cut = _cut_beforehand(self.gpus)
        return {names.EMULATED_GPUS: listed} | ({names.MIG_CONFIG: migconfig.render(cut)} if cut else {})

    def extra_capacity(self) -> dict[str, str]:
        """On a light node no agent reports what its GPUs give."""
        return _static_capacity(self.gpus) if self.light else {}


class Topology(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pools: list[GpuPool]
    sharing: bool = False  # whether GPU sharing is installed

    def nodes(self) -> list[NodePlan]:
        """Every node of every pool, in the order of the file."""
        return [plan for pool in self.pools for plan in pool.plans()]


def default(nodes: int = 1, *, sharing: bool = False) -> Topology:
    """What `apportion up` starts without a file: nodes with two emulated A100-40GB each.

    GPUs in MIG mode cannot be shared, so with sharing one more node has two that are not.
    """
    if nodes < 0:
        raise TopologyError(f"--nodes: {nodes} is negative: use 0 or more")
    if nodes > topology_limits.MOST_FULL_NODES:
        raise TopologyError(f"--nodes: {nodes} is too large: use at most {topology_limits.MOST_FULL_NODES}")
    sliced = GpuPool(name="node", nodes=nodes, gpus=[PoolGpus()])
    whole = GpuPool(name="whole-gpu-node", gpus=[PoolGpus(mig=False)])
    return Topology(pools=[sliced, whole] if sharing else [sliced], sharing=sharing)


def load(*paths: Path, cluster: str = "apportion") -> Topology:
    """One topology file, or a kind cluster file with values of fake-gpu-operator."""
    read = [(str(path), _read(path)) for path in paths]
    if len(read) == 1 and not kind_files.is_kind(read[0][1]):
        return parse(read[0][1], read[0][0])
    try:
        return parse({"pools": kind_files.pools(read, cluster)}, ", ".join(source for source, _ in read))
    except kind_files.KindFileError as error:
        raise TopologyError(str(error)) from None


def _read(path: Path) -> Any:
    try:
        text = input_files.text(path)
        topology_limits.check_file(str(path), text)
        return yaml.safe_load(text)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
    except topology_limits.LimitExceeded as error:
        raise TopologyError(str(error)) from None
    except (UnicodeDecodeError, RecursionError, yaml.YAMLError, ValueError) as error:
        raise TopologyError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None


def parse(raw: Any, source: str = "topology") -> Topology:
    try:
        topology = msgspec.convert(raw, Topology)
    except msgspec.ValidationError as error:
        raise TopologyError(f"{source}: {_readable(str(error))}") from None
    _check(topology, source)
    return topology


def _readable(text: str) -> str:
    message, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    return f"{field}: {message}" if field else message


def _check(topology: Topology, source: str) -> None:
    if not topology.pools:
        raise TopologyError(f"{source}: pools: [] has no pool: add at least one")
    seen: set[str] = set()
    for position, pool in enumerate(topology.pools):
        where = f"{source}: pools[{position}]"
        if pool.nodes < 0:
            raise TopologyError(f"{where}.nodes: {pool.nodes} is negative: use 0 or more")
        if pool.node_names and len(pool.node_names) != pool.nodes:
            raise TopologyError(
                f"{where}.nodeNames: {len(pool.node_names)} names for {pool.nodes} nodes: name all nodes, or none"
            )
        if not _is_name(pool.name):
            raise TopologyError(
                f"{where}.name: {pool.name!r} is not a valid node name: use at most 48 of a-z, 0-9 and '-'"
            )
        if pool.name in seen:
            raise TopologyError(f"{where}.name: {pool.name!r} is used twice: use a different name for each pool")
        seen.add(pool.name)
        for index, gpus in enumerate(pool.gpus):
            if gpus.count < 0:
                raise TopologyError(f"{where}.gpus[{index}].count: {gpus.count} is negative: use 0 or more")
            gpus.check(f"{where}.gpus[{index}]")
    try:
        topology_limits.check(topology.pools, source)
    except topology_limits.LimitExceeded as error:
        raise TopologyError(str(error)) from None


MAX_NAME = 48


def _is_name(text: str) -> bool:
    plain = all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in text)
    return plain and 0 < len(text) <= MAX_NAME and text[0] != "-" and text[-1] != "-"


def _gpu_labels(gpus: list[PoolGpus]) -> dict[str, str]:
    labels = {names.GPU_PRESENT_LABEL: "true", names.GPU_PRODUCT_LABEL: gpus[0].product.replace(" ", "-")}
    labels[names.GPU_COUNT_LABEL] = str(sum(entry.count for entry in gpus))
    model = Catalog.shipped().find(gpus[0].product, gpus[0].memory_mib)
    memory = gpus[0].memory_mib or (model.memory_mib if model else 0)
    if memory:
        labels[names.GPU_MEMORY_LABEL] = str(memory)
    if any(entry.sliced for entry in gpus) or (model is not None and model.profiles):
        labels[names.MIG_CAPABLE_LABEL] = "true"
    else:
        labels[names.MANAGED_LABEL] = "true"
    if any(entry.layout for entry in gpus):
        labels[names.MIG_STRATEGY_LABEL] = "mixed"
    return labels


def _gpu_entry(gpus: PoolGpus) -> dict[str, Any]:
    entry = {"product": gpus.product, "count": gpus.count, "memoryMiB": gpus.memory_mib, "mig": gpus.sliced}
    return {key: value for key, value in entry.items() if value is not None}


def _cut_beforehand(gpus: list[PoolGpus]) -> dict[int, layouts.Cuts]:
    """The layouts by GPU number, as the node counts its GPUs."""
    found: dict[int, layouts.Cuts] = {}
    number = 0
    for entry in gpus:
        cuts = entry.cuts("gpus")
        if cuts:
            found |= dict.fromkeys(range(number, number + entry.count), cuts)
        number += entry.count
    return found


def _static_capacity(gpus: list[PoolGpus]) -> dict[str, str]:
    if not gpus:
        return {}
    amounts = Counter(
        {names.NVIDIA_GPU: sum(entry.count for entry in gpus if not entry.sliced and not entry.cuts("gpus"))}
    )
    for cuts in _cut_beforehand(gpus).values():
        amounts.update(profiles.nvidia_resource(name) for name, _, _ in cuts)
    return {resource: str(amount) for resource, amount in amounts.items()}
