"""GPUs of nodes whose agent reports none, for example because NVIDIA's own device plugin serves them (G10).

The kubelet says how many there are, and a label how much memory each has. Which of them a pod gets is not known: each
is a slot. A node that does not say how much memory its GPUs have takes fractions only. A node whose device plugin
divides GPUs itself, by time-slicing or MPS, lists each GPU several times: it takes no shares.
"""

from __future__ import annotations

from collections.abc import Mapping

from apportion.apis import names, quantity, shared_gpus
from apportion.apis.errors import InputError
from apportion.apis.identities import NodeName
from apportion.apis.nodes import Node
from apportion.core.catalog import Model
from apportion.core.fleet_facts import GpuFacts
from apportion.core.node import MILLI, MOST_GPUS

_MIG_PRODUCT = "-MIG-"  # in the product of nodes whose nvidia.com/gpu are MIG devices
_DIVIDED_PRODUCT = "-SHARED"  # at the end of the product of nodes whose device plugin divides GPUs


def of_node(node: Node) -> tuple[GpuFacts, ...]:
    """The GPUs that can be shared or given whole, as far as the Node object shows them."""
    name, labels = NodeName(node.metadata.name), node.metadata.labels
    product = labels.get(names.GPU_PRODUCT_LABEL, "")
    count = _count(node)
    if not count or _MIG_PRODUCT in product:
        return ()
    mib = shared_gpus.memory_by_label(labels)
    model = Model.from_discovery(product or "GPU", mib or MILLI, ())
    slots = (shared_gpus.slot(name, number) for number in range(count))
    whole = not _divided(labels)
    return tuple(GpuFacts(slot, model, mig=False, measured=mib is not None, takes_shares=whole) for slot in slots)


def _divided(labels: Mapping[str, str]) -> bool:
    replicas = labels.get(names.GPU_REPLICAS_LABEL, "1")
    return replicas not in ("0", "1") or labels.get(names.GPU_PRODUCT_LABEL, "").endswith(_DIVIDED_PRODUCT)


def _count(node: Node) -> int:
    try:
        found = quantity.whole(node.status.capacity.get(names.NVIDIA_GPU, 0))
    except InputError:
        return 0
    return max(0, min(found, MOST_GPUS))
