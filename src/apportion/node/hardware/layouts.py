"""Static layouts of GPUs, as the Node's annotation `run.ai/mig.config` says.

The layout of a GPU changes only while it is empty: no slices, and none claimed. Until then it keeps its slices, those
in use stay healthy for their pods, and the free ones are no longer allocated, so that it becomes empty.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from apportion.apis import migconfig, names
from apportion.apis.errors import InputError
from apportion.apis.migconfig import FAILED, PENDING, SUCCESS, MigConfig, Selection
from apportion.apis.placements import SlicePlacement
from apportion.core import layouts
from apportion.core.catalog import Catalog
from apportion.node.cluster.claim_store import ClaimStore
from apportion.node.hardware.partitioner import Gpu, Layout, LaysOut, Partitioner, PartitionError
from apportion.node.hardware.slice_records import SliceRecords
from apportion.node.kubelet.device_holders import DeviceHolders
from apportion.node.locks import Locks

DRAINING = "no new slices until no pod uses it: its MIG layout will change"

log = logging.getLogger(__name__)


class Layouts:
    """`state` is what the node's label says; `draining` are the GPUs that wait to be empty.

    A GPU that claims or records of slices name is not empty.
    """

    def __init__(
        self, driver: Partitioner, holders: DeviceHolders, locks: Locks, store: ClaimStore, records: SliceRecords
    ) -> None:
        self._driver = driver
        self._holders = holders
        self._locks = locks
        self._store = store
        self._records = records
        self._catalog = Catalog.shipped()
        self._text: str | None = None
        self._config: MigConfig | None = None
        self.state = ""
        self.problem = ""
        self.draining: frozenset[str] = frozenset()

    async def apply(self, annotations: Mapping[str, str], gpus: Sequence[Gpu]) -> bool:
        """Bring every empty GPU into the layout that is wanted; whether anything was changed."""
        if not isinstance(self._driver, LaysOut) or not self._read(annotations.get(names.MIG_CONFIG)):
            return False
        try:
            wanted = [self._wanted(index, gpu) for index, gpu in enumerate(gpus)]
        except InputError as error:
            self._fail(str(error))
            return False
        due = [(gpu, layout) for gpu, layout in zip(gpus, wanted, strict=True) if _current(gpu) != layout]
        changed = await self._lay_out(due, self._driver) if due else False
        if self._config is None:
            self.state, self.problem = "", ""
        elif self.draining:
            self.state, self.problem = PENDING, f"waiting until no pod uses {', '.join(sorted(self.draining))}"
        elif self.state != FAILED or changed or not due:
            self.state, self.problem = SUCCESS, ""
        return changed

    def waiting(self, gpus: Sequence[Gpu]) -> list[Gpu]:
        """The GPUs as others should see them: one that is cut on demand and waits to be empty takes nothing new."""
        return [
            replace(gpu, fault=gpu.fault or DRAINING)
            if gpu.uuid in self.draining and gpu.sliced and not gpu.fixed
            else gpu
            for gpu in gpus
        ]

    async def _lay_out(self, due: Sequence[tuple[Gpu, Layout | None]], driver: LaysOut) -> bool:
        waiting, changed = set[str](), False
        for gpu, layout in due:
            try:
                done = await self._lay_out_if_empty(gpu, layout, driver)
            except PartitionError as error:
                self._fail(str(error))
                break
            if done:
                log.info("applied the MIG layout of %s: %s", gpu.uuid, _words(layout))
                changed = True
            else:
                waiting.add(gpu.uuid)
        self.draining = frozenset(waiting)
        return changed

    async def _lay_out_if_empty(self, gpu: Gpu, layout: Layout | None, driver: LaysOut) -> bool:
        if await self._busy(gpu):  # checked first without the lock, so that a slow GPU does not block others
            return False
        async with self._locks.gpu(gpu.uuid):
            if await self._busy(gpu):
                return False
            await driver.lay_out(gpu.uuid, layout)
            return True

    async def _busy(self, gpu: Gpu) -> bool:
        cut = {entry.place.gpu for entry in await self._driver.slices()}
        held = self._holders.held()
        if gpu.uuid in cut or gpu.uuid in held or any(entry.uuid in held for entry in gpu.fixed or ()):
            return True
        claimed = {claim.spec.gpu_uuid for claim in self._store.all()}
        return gpu.uuid in claimed | {record.place.gpu for record in self._records}

    def _read(self, text: str | None) -> bool:
        """False if the annotation cannot be read: then everything stays as it is."""
        if text != self._text:
            try:
                self._config = migconfig.parse(text) if text else None
            except InputError as error:
                self._fail(str(error))
                return False
            self._text = text
            self.draining = frozenset()
            if self.state == FAILED:
                self.state = ""
        return True

    def _wanted(self, index: int, gpu: Gpu) -> Layout | None:
        selection = self._config.of(index) if self._config else None
        if selection is None:
            return None
        if not selection.layout:
            return Layout(selection.enabled)
        return self._cut(gpu, selection)

    def _cut(self, gpu: Gpu, selection: Selection) -> Layout:
        model = self._catalog.find(gpu.model, gpu.memory_mib)
        if model is None:
            raise migconfig.MigConfigError(names.MIG_CONFIG, gpu.model, "this GPU model is unknown")
        cuts = layouts.lay_out(model, selection.layout, names.MIG_CONFIG)
        return Layout(sliced=True, places=tuple(SlicePlacement(gpu.uuid, *each) for each in cuts))

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s; the layout is not changed", problem)
        self.state, self.problem = FAILED, problem


def _current(gpu: Gpu) -> Layout | None:
    if gpu.fixed is None:
        return None
    return Layout(gpu.sliced, tuple(entry.place for entry in gpu.fixed))


def _words(layout: Layout | None) -> str:
    if layout is None:
        return "none, default mode"
    if not layout.sliced:
        return "MIG mode disabled"
    return ", ".join(f"{place.profile} at {place.start}" for place in layout.places) or "dynamic slices"
