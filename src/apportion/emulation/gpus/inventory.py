"""Which GPUs an emulated node has: read from the annotation `apportion.io/emulated-gpus` of its Node.

[{"product": "NVIDIA A100-PCIE-40GB", "count": 2, "memoryMiB": 40960, "mig": true}]

Without `mig` GPUs are in MIG mode if their model supports it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from apportion.apis import names
from apportion.apis.identities import DeviceUUID
from apportion.core.catalog import Catalog, Model
from apportion.node.hardware.partitioner import Refused

LARGEST_COUNT = 64
_NIL = uuid.UUID(int=0)


class DeclaredGpus(msgspec.Struct, rename="camel"):
    product: str = "NVIDIA A100-PCIE-40GB"
    count: int = 2
    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")
    mig: bool | None = None


@dataclass(frozen=True)
class InventoryGpu:
    product: str
    model: Model
    memory_mib: int
    mig: bool


@dataclass(frozen=True)
class Inventory:
    gpus: tuple[InventoryGpu, ...]

    @classmethod
    def parse(cls, annotations: Mapping[str, str], catalog: Catalog) -> Inventory:
        text = annotations.get(names.EMULATED_GPUS)
        if text is None:
            entries = [DeclaredGpus()]
        else:
            try:
                entries = msgspec.json.decode(text, type=list[DeclaredGpus])
            except msgspec.DecodeError as error:
                raise _refused(text, f"{error}; it must be a JSON list of GPUs with product and count") from None
        total = sum(entry.count for entry in entries)
        if total > LARGEST_COUNT:
            raise _refused(total, f"a node has at most {LARGEST_COUNT} GPUs")
        return cls(tuple(item for entry in entries for item in _items(entry, catalog)))


def device_uuid(node: str, index: int) -> DeviceUUID:
    """The same for every start of the agent, and known to all who know the node."""
    return DeviceUUID(f"GPU-{uuid.uuid5(_NIL, f'{node}-{index}')}")


def _items(entry: DeclaredGpus, catalog: Catalog) -> list[InventoryGpu]:
    if not 0 <= entry.count <= LARGEST_COUNT:
        raise _refused(entry.count, f"count must be from 0 to {LARGEST_COUNT}")
    model = catalog.find(entry.product, entry.memory_mib)
    if model is None:
        known = ", ".join(sorted(model.id for model in catalog))
        raise _refused(entry.product, f"use the product name of the driver, or one of {known}")
    if entry.mig and not model.profiles:
        raise _refused(entry.product, 'this model does not support MIG: remove "mig"')
    memory = entry.memory_mib or model.memory_mib
    mig = bool(model.profiles) if entry.mig is None else entry.mig
    return [InventoryGpu(entry.product, model, memory, mig)] * entry.count


def _refused(value: object, fix: str) -> Refused:
    return Refused(f"node annotation {names.EMULATED_GPUS}: {value!r}: {fix}")
