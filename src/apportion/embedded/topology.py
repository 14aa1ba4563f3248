"""The shape of an embedded cluster: pools of nodes, read from a YAML file.

pools:
  - name: a100
    nodes: 2
    labels: {node-pool: small}
    taints: [{key: gpu, value: "yes", effect: NoSchedule}]
    zones: [a, b]                 # nodes take them in turn
    gpus:
      - {product: NVIDIA A100-PCIE-40GB, count: 2}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from apportion.apis import names


class TopologyError(ValueError):
    """A topology file that cannot be used; the text names the field, what is wrong and the fix."""


class Gpus(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """GPUs of one product in a node. Without `memoryMiB` the catalogue's memory holds."""

    product: str = "NVIDIA A100-PCIE-40GB"
    count: int = 2
    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")
    mig: bool = True
    layout: list[str] = []


class Taint(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class Pool(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Nodes that are alike. A light pool has no sockets and no child processes: for thousands of nodes."""

    name: str
    nodes: int = 1
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[Taint] = []
    zones: list[str] = []
    cpu: str = "64"
    memory: str = "256Gi"
    pods: int = 110
    resources: dict[str, str] = {}
    gpus: list[Gpus] = []
    light: bool = False


class Topology(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    pools: list[Pool]

    def nodes(self) -> list[NodePlan]:
        """Every node of every pool, in the order of the file."""
        return [_node(pool, index) for pool in self.pools for index in range(pool.nodes)]


class NodePlan(msgspec.Struct, frozen=True):
    """One node to bring up."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    taints: list[dict[str, str]]
    capacity: dict[str, str]
    light: bool = False


def default(nodes: int = 1) -> Topology:
    """What `apportion up` starts without a file: nodes with two emulated A100-40GB each."""
    if nodes < 0:
        raise TopologyError(f"--nodes: {nodes} is negative: give 0 or more")
    return Topology(pools=[Pool(name="node", nodes=nodes, gpus=[Gpus()])])


def load(path: Path) -> Topology:
    try:
        raw = yaml.safe_load(path.read_text())
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise TopologyError(f"{path}: is not YAML: {error}") from None
    return parse(raw, str(path))


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
        raise TopologyError(f"{source}: pools: [] has no pool: name at least one")
    seen: set[str] = set()
    for position, pool in enumerate(topology.pools):
        where = f"{source}: pools[{position}]"
        if pool.nodes < 0:
            raise TopologyError(f"{where}.nodes: {pool.nodes} is negative: give 0 or more")
        if not _is_name(pool.name):
            raise TopologyError(
                f"{where}.name: {pool.name!r} is no node name: use a-z, 0-9 and '-', at most 48 of them"
            )
        if pool.name in seen:
            raise TopologyError(f"{where}.name: {pool.name!r} is used twice: give each pool its own name")
        seen.add(pool.name)
        for index, gpus in enumerate(pool.gpus):
            if gpus.count < 0:
                raise TopologyError(f"{where}.gpus[{index}].count: {gpus.count} is negative: give 0 or more")


MAX_NAME = 48


def _is_name(text: str) -> bool:
    plain = all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in text)
    return plain and 0 < len(text) <= MAX_NAME and text[0] != "-" and text[-1] != "-"


def _node(pool: Pool, index: int) -> NodePlan:
    name = f"{pool.name}-{index + 1}"
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        names.HOSTNAME_LABEL: name,
        "kubernetes.io/os": "linux",
    }
    if pool.zones:
        labels[names.ZONE_LABEL] = pool.zones[index % len(pool.zones)]
    annotations = {
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    if pool.gpus:
        labels |= _gpu_labels(pool.gpus)
        annotations[names.EMULATED_GPUS] = json.dumps([_gpu_entry(entry) for entry in pool.gpus], separators=(",", ":"))
    capacity = {
        "cpu": pool.cpu,
        "memory": pool.memory,
        "pods": str(pool.pods),
        "ephemeral-storage": "1Ti",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    return NodePlan(
        name=name,
        labels=labels | pool.labels,
        annotations=annotations | pool.annotations,
        taints=[_taint(taint) for taint in pool.taints],
        capacity=capacity | pool.resources,
        light=pool.light,
    )


def _gpu_labels(gpus: list[Gpus]) -> dict[str, str]:
    labels = {"nvidia.com/gpu.present": "true", names.GPU_PRODUCT_LABEL: gpus[0].product.replace(" ", "-")}
    labels["nvidia.com/gpu.count"] = str(sum(entry.count for entry in gpus))
    if any(entry.mig for entry in gpus):
        labels[names.MIG_CAPABLE_LABEL] = "true"
    return labels


def _gpu_entry(gpus: Gpus) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(gpus).items() if value not in (None, [])}


def _taint(taint: Taint) -> dict[str, str]:
    made = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        made["value"] = taint.value
    return made
