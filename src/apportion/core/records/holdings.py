"""Slices and shares that the cluster holds, by key, whether their GPU is known yet or not.

A claim may be seen before the node that carries its GPU, and a node may come back with its GPUs. So the records are
independent of the ledgers, and are entered into a GPU's ledger whenever that GPU is there. A slice or share that names
another node than the one that has the GPU is on no GPU: whoever writes such a claim or pod must not occupy the GPUs of
other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from apportion.apis.identities import NO_NODE, DeviceUUID, NodeName, PodUID
from apportion.core.fleet_facts import HeldShare, HeldSlice
from apportion.core.ledger import GpuLedger

T = TypeVar("T")

Holding = HeldSlice | HeldShare


class Holdings:
    """All records, by key, by pod and by GPU. `gpus` holds the ledgers that are known."""

    def __init__(self) -> None:
        self.slices: dict[str, HeldSlice] = {}
        self.shares: dict[str, HeldShare] = {}
        self.gpus: dict[DeviceUUID, GpuLedger] = {}
        self._homes: dict[DeviceUUID, NodeName] = {}
        self._by_owner: dict[str, set[str]] = {}
        self._by_gpu: dict[DeviceUUID, set[str]] = {}

    def get(self, key: str) -> Holding | None:
        return self.slices.get(key) or self.shares.get(key)

    def known(self, uid: PodUID) -> bool:
        return uid in self._by_owner

    def of_owner(self, uid: PodUID) -> list[Holding]:
        return [record for key in sorted(self._by_owner.get(uid, ())) if (record := self.get(key))]

    def on_gpus(self, uuids: Iterable[DeviceUUID]) -> list[Holding]:
        keys = [key for uuid in uuids for key in self._by_gpu.get(uuid, ())]
        return [record for key in keys if (record := self.get(key))]

    def add(self, record: Holding) -> None:
        if isinstance(record, HeldSlice):
            self.slices[record.key] = record
        else:
            self.shares[record.key] = record
        self._by_owner.setdefault(record.owner, set()).add(record.key)
        self._by_gpu.setdefault(record.gpu, set()).add(record.key)
        if self._is_home(record):
            _enter(record, self.gpus[record.gpu])

    def remove(self, record: Holding) -> None:
        if isinstance(record, HeldSlice):
            del self.slices[record.key]
        else:
            del self.shares[record.key]
        _discard(self._by_owner, record.owner, record.key)
        _discard(self._by_gpu, record.gpu, record.key)
        if self._is_home(record):
            _leave(record, self.gpus[record.gpu])

    def attach(self, gpu: GpuLedger, node: NodeName) -> None:
        """Enter everything that is on this GPU of this node into its empty ledger."""
        self.gpus[gpu.uuid] = gpu
        self._homes[gpu.uuid] = node
        for key in sorted(self._by_gpu.get(gpu.uuid, ())):
            record = self.get(key)
            assert record is not None
            if self._is_home(record):
                _enter(record, gpu)

    def detach(self, uuid: DeviceUUID) -> None:
        self.gpus.pop(uuid, None)
        self._homes.pop(uuid, None)

    def _is_home(self, record: Holding) -> bool:
        """The record's GPU is known, and on the node that the record names, if it names one."""
        return record.gpu in self.gpus and record.node in (NO_NODE, self._homes[record.gpu])

    def record(self) -> dict[str, object]:
        return {
            "slices": [list(self.slices[key]) for key in sorted(self.slices)],
            "shares": [list(self.shares[key]) for key in sorted(self.shares)],
            "gpus": sorted(self.gpus),
        }


def _enter(record: Holding, gpu: GpuLedger) -> None:
    if isinstance(record, HeldSlice):
        gpu.adopt_slice(record)
    else:
        gpu.adopt_share(record.key, record.mib)


def _leave(record: Holding, gpu: GpuLedger) -> None:
    if isinstance(record, HeldSlice):
        gpu.remove_slice(record.key)
    else:
        gpu.remove_share(record.key)


def _discard(index: dict[T, set[str]], name: T, key: str) -> None:
    keys = index[name]
    keys.discard(key)
    if not keys:
        del index[name]
