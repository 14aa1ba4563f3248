"""Slices and shares that the cluster holds, by key, whether their GPU is known yet or not.

A claim may be seen before the node that carries its GPU, and a node may come back with its GPUs. So the
records stand on their own, and are entered into a GPU's ledger whenever that GPU is there.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.core.ledger import Gpu, Slice


class SliceRecord(NamedTuple):
    """A slice that the cluster holds: its claim's name is its key."""

    key: str
    gpu: str
    profile: str
    start: int
    size: int
    pod_uid: str

    def enter(self, gpu: Gpu) -> None:
        gpu.adopt_slice(self.key, Slice(self.profile, self.start, self.size, self.pod_uid))

    def leave(self, gpu: Gpu) -> None:
        gpu.remove_slice(self.key)


class ShareRecord(NamedTuple):
    """A share of a GPU's memory that a pod holds."""

    key: str
    gpu: str
    mib: int
    pod_uid: str

    def enter(self, gpu: Gpu) -> None:
        gpu.adopt_share(self.key, self.mib)

    def leave(self, gpu: Gpu) -> None:
        gpu.remove_share(self.key)


Record = SliceRecord | ShareRecord


class Holdings:
    """All records, by key, by pod and by GPU. `gpus` holds the ledgers that are known."""

    def __init__(self) -> None:
        self.slices: dict[str, SliceRecord] = {}
        self.shares: dict[str, ShareRecord] = {}
        self.gpus: dict[str, Gpu] = {}
        self._by_pod: dict[str, set[str]] = {}
        self._by_gpu: dict[str, set[str]] = {}

    def get(self, key: str) -> Record | None:
        return self.slices.get(key) or self.shares.get(key)

    def of_pod(self, uid: str) -> list[Record]:
        return [record for key in sorted(self._by_pod.get(uid, ())) if (record := self.get(key))]

    def add(self, record: Record) -> None:
        if isinstance(record, SliceRecord):
            self.slices[record.key] = record
        else:
            self.shares[record.key] = record
        self._by_pod.setdefault(record.pod_uid, set()).add(record.key)
        self._by_gpu.setdefault(record.gpu, set()).add(record.key)
        if record.gpu in self.gpus:
            record.enter(self.gpus[record.gpu])

    def remove(self, record: Record) -> None:
        if isinstance(record, SliceRecord):
            del self.slices[record.key]
        else:
            del self.shares[record.key]
        _discard(self._by_pod, record.pod_uid, record.key)
        _discard(self._by_gpu, record.gpu, record.key)
        if record.gpu in self.gpus:
            record.leave(self.gpus[record.gpu])

    def attach(self, gpu: Gpu) -> None:
        """Enter everything that is on this GPU into its empty ledger."""
        self.gpus[gpu.uuid] = gpu
        for key in sorted(self._by_gpu.get(gpu.uuid, ())):
            record = self.get(key)
            assert record is not None
            record.enter(gpu)

    def detach(self, uuid: str) -> None:
        self.gpus.pop(uuid, None)

    def record(self) -> dict[str, object]:
        return {
            "slices": [list(self.slices[key]) for key in sorted(self.slices)],
            "shares": [list(self.shares[key]) for key in sorted(self.shares)],
            "gpus": sorted(self.gpus),
        }


def _discard(index: dict[str, set[str]], name: str, key: str) -> None:
    keys = index[name]
    keys.discard(key)
    if not keys:
        del index[name]
