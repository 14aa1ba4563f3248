"""A cluster described by files of two other tools: kind's cluster file and the values of fake-gpu-operator.

kind says which nodes there are and how they are labelled; the values say which GPUs the nodes of a pool have.
A node belongs to the pool that its label `nodePoolLabelKey` names, or its label `node-pool`. As with that
operator the GPUs are whole until the node's annotation `run.ai/mig.config` cuts them. What both tools configure
besides (images, mounts, ports) has no meaning here and is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from apportion.apis import names as wire
from apportion.core.catalog import Catalog

Json = dict[str, Any]

POOL_LABEL = wire.SIMULATED_POOL_LABEL
PLAIN_POOL_LABEL = "node-pool"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


class KindFileError(ValueError):
    """A file that cannot be used; the text names the field, the value and the fix."""


def is_kind(raw: Any) -> bool:
    return isinstance(raw, Mapping) and str(raw.get("apiVersion", "")).startswith("kind.x-k8s.io/")


def pools(files: Sequence[tuple[str, Any]], cluster: str) -> list[Json]:
    """The pools of a topology, one per node. `files` are (name, content), in any order."""
    kinds = [(source, raw) for source, raw in files if is_kind(raw)]
    if len(kinds) != 1:
        listed = ", ".join(source for source, _ in files)
        raise KindFileError(f"{listed}: {len(kinds)} kind cluster files: use one, and values of fake-gpu-operator")
    source, raw = kinds[0]
    simulated = _Pools([(name, content) for name, content in files if not is_kind(content)])
    nodes = raw.get("nodes") or [{"role": "control-plane"}]
    if not isinstance(nodes, list):
        raise KindFileError(f"{source}: nodes: {nodes!r}: use a list of nodes with their roles")
    names = _names(str(raw.get("name") or cluster))
    return [_pool(node, names, simulated, f"{source}: nodes[{index}]") for index, node in enumerate(nodes)]


class _Pools:
    """The GPU pools of all value files."""

    def __init__(self, files: Sequence[tuple[str, Any]]) -> None:
        self.found: dict[str, Json] = {}
        self.label_key = POOL_LABEL
        for source, raw in files:
            if raw is not None:
                self._add(source, raw)

    def of(self, labels: Mapping[str, str]) -> tuple[str, Json] | None:
        for key in (self.label_key, POOL_LABEL, PLAIN_POOL_LABEL):
            name = labels.get(key)
            if name in self.found:
                return str(name), self.found[str(name)]
        return None

    def _add(self, source: str, raw: Any) -> None:
        if not isinstance(raw, Mapping):
            raise KindFileError(f"{source}: {raw!r}: use values of fake-gpu-operator, with topology.nodePools")
        settings = raw.get("topology") or raw.get("cluster") or raw
        if not isinstance(settings, Mapping) or not isinstance(settings.get("nodePools") or {}, Mapping):
            raise KindFileError(f"{source}: topology.nodePools: use pools by name, each with gpuProduct and gpuCount")
        self.label_key = settings.get("nodePoolLabelKey") or self.label_key
        listed = dict(settings.get("nodePools") or {})
        # A pool that was pasted at the margin of the file is meant as one all the same.
        listed |= {key: value for key, value in raw.items() if isinstance(value, Mapping) and "gpuProduct" in value}
        for name, pool in listed.items():
            self.found[str(name)] = _checked(pool, f"{source}: nodePools.{name}")


def _checked(pool: Any, field: str) -> Json:
    if not isinstance(pool, Mapping) or "gpuProduct" not in pool:
        raise KindFileError(f"{field}: {pool!r}: set gpuProduct, gpuCount and gpuMemory")
    for key in ("gpuCount", "gpuMemory"):
        value = pool.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise KindFileError(f"{field}.{key}: {value!r}: use a number of 0 or more")
    product, memory = pool["gpuProduct"], pool.get("gpuMemory") or None
    if Catalog.shipped().find(str(product), memory) is None:
        raise KindFileError(
            f"{field}.gpuProduct: {product!r} is not a known GPU model: use the product name of the driver"
        )
    return dict(pool)


def _pool(node: Any, names: Callable[[str], str], simulated: _Pools, field: str) -> Json:
    if not isinstance(node, Mapping):
        raise KindFileError(f"{field}: {node!r}: use a node with its role")
    role = str(node.get("role", "control-plane"))
    name = names(role)
    labels = _labels(node, field)
    pool: Json = {"name": name, "nodeNames": [name]}
    if role == "control-plane":
        labels[CONTROL_PLANE] = ""
        pool["taints"] = [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]
    found = simulated.of(labels)
    if found is not None:
        labels[POOL_LABEL] = found[0]
        pool |= _gpus(found[1])
    pool["labels"] = labels
    return pool


def _gpus(values: Json) -> Json:
    product, memory = str(values["gpuProduct"]), values.get("gpuMemory") or None
    entry = {"product": product, "count": values.get("gpuCount", 1), "memoryMiB": memory, "mig": False}
    others = {str(each["name"]): str(each["count"]) for each in values.get("otherDevices") or ()}
    return {"gpus": [entry], "resources": others}


def _labels(node: Mapping[str, Any], field: str) -> dict[str, str]:
    raw = node.get("labels") or {}
    if not isinstance(raw, Mapping):
        raise KindFileError(f"{field}.labels: {raw!r}: use names with values")
    labels = {str(key): str(value) for key, value in raw.items()}
    for patch in node.get("kubeadmConfigPatches") or ():
        try:
            registration = (yaml.safe_load(patch) or {}).get("nodeRegistration") or {}
        except (yaml.YAMLError, AttributeError):
            continue
        listed = _argument(registration.get("kubeletExtraArgs"), "node-labels")
        labels |= dict(part.split("=", 1) for part in str(listed).split(",") if "=" in part)
    return labels


def _argument(arguments: Any, name: str) -> Any:
    """An argument of the kubelet, from the map of older kubeadm versions or the list of v1beta4."""
    if isinstance(arguments, list):
        arguments = {each.get("name"): each.get("value") for each in arguments if isinstance(each, Mapping)}
    return (arguments.get(name) if isinstance(arguments, Mapping) else None) or ""


def _names(cluster: str) -> Callable[[str], str]:
    """Names as kind gives them: the first of a role has no number."""
    seen: dict[str, int] = {}

    def name(role: str) -> str:
        seen[role] = seen.get(role, 0) + 1
        return f"{cluster}-{role}" + (str(seen[role]) if seen[role] > 1 else "")

    return name
