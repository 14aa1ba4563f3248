"""The ledger of one GPU: sliced, shared, whole or free, never two of these.

Slices are counted in grid units, shares in MiB. Decisions take what the ledger has to offer (`takes_slices`, the grid
with its state, `free_mib`, `takes_whole`). What exists in the cluster is recorded as it is, legal or not: slices that
overlap block their units until one of them is gone.
"""

from __future__ import annotations

from enum import StrEnum

from apportion.apis.errors import LedgerError
from apportion.apis.identities import DeviceUUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.shares import Share
from apportion.core import grid as grids
from apportion.core.fleet_facts import GpuFacts, HeldSlice

MILLI = 1000


class Use(StrEnum):
    FREE = "free"
    SLICED = "sliced"
    SHARED = "shared"
    WHOLE = "whole"


class GpuLedger:
    """One GPU's ledger."""

    __slots__ = (
        "facts",
        "grid",
        "memory_mib",
        "reservation",
        "shared_mib",
        "shares",
        "slices",
        "state",
        "strays",
        "unsized",
        "whole",
    )

    def __init__(self, facts: GpuFacts) -> None:
        self.facts = facts
        self.grid = grids.of(facts.model)
        self.memory_mib = facts.model.memory_mib
        self.state = grids.EMPTY
        self.slices: dict[str, HeldSlice] = {}
        self.strays: set[str] = set()  # adopted slices that are not legal beside the others
        self.shares: dict[str, int] = {}
        self.shared_mib = 0
        self.unsized = 0  # shares of which nobody knows how large they are
        self.whole: str | None = None
        self.reservation: str | None = None  # the pod that holds the GPU for pods that share it

    @property
    def uuid(self) -> DeviceUUID:
        return self.facts.uuid

    @property
    def use(self) -> Use:
        if self.slices:
            return Use.SLICED
        if self.shared:
            return Use.SHARED
        return Use.FREE if self.whole is None else Use.WHOLE

    @property
    def takes_slices(self) -> bool:
        return self.facts.mig and self.facts.healthy and not self.shares and not self.held

    @property
    def takes_whole(self) -> bool:
        return not self.facts.mig and self.facts.healthy and not self.held and not self.shares and not self.slices

    @property
    def shared(self) -> bool:
        """Pods share it, or it is reserved for some."""
        return bool(self.shares) or self.reservation is not None

    @property
    def held(self) -> bool:
        """A pod holds the device, for itself or as a reservation."""
        return self.whole is not None or self.reservation is not None

    @property
    def free_mib(self) -> int:
        """Memory that a new share may take."""
        facts = self.facts
        if facts.mig or not facts.healthy or not facts.takes_shares or self.whole is not None or self.slices:
            return 0
        if self.unsized or (self.reservation is not None and not self.shares):
            return 0  # what its sharers use is not known
        return max(0, self.memory_mib - self.shared_mib)

    @property
    def left_milli(self) -> int:
        """Thousandths of the GPU that are left for shares; all or nothing if it takes none or its memory is unknown."""
        if self.memory_mib and self.facts.takes_shares:
            return self.free_mib * MILLI // self.memory_mib
        return MILLI if self.takes_whole else 0

    def mib_of(self, share: Share) -> int:
        """What a share takes of this GPU; 0 if that cannot be said."""
        return share.mib_on(self.memory_mib) if self.facts.measured or share.memory_mib is None else 0

    def left_after(self, share: Share) -> int | None:
        """What is left in thousandths after a share, None if it does not fit."""
        mib, free = self.mib_of(share), self.free_mib
        return (free - mib) * MILLI // self.memory_mib if 0 < mib <= free else None

    def adopt_slice(self, held: HeldSlice) -> None:
        """Record a slice that exists, legal or not."""
        if held.key in self.slices:
            self.remove_slice(held.key)
        self.slices[held.key] = held
        if self.strays or not self._enter(held.placement):
            self._rebuild()  # which slice is the stray depends on the slices alone, not on the order in which they came

    def remove_slice(self, key: str) -> HeldSlice:
        held = self.slices.pop(key, None)
        if held is None:
            raise LedgerError("UnknownKey", f"no slice {key} on GPU {self.uuid}")
        shape = self.grid.shape(held.placement.profile)
        if self.strays or shape is None:
            self._rebuild()
        else:
            self.state = self.grid.take(self.state, shape, held.placement.start)
        return held

    def legal_beside_others(self, held: HeldSlice) -> bool:
        """A slice that is recorded here could have been placed there with all others in place."""
        others = GpuLedger(self.facts)
        for key, other in self.slices.items():
            if key != held.key:
                others.adopt_slice(other)
        return others._enter(held.placement)

    def adopt_share(self, key: str, mib: int) -> None:
        """Record a share that exists, even if it does not fit. One of 0 MiB is of unknown size."""
        if key in self.shares:
            self.remove_share(key)
        self.shares[key] = mib
        self.shared_mib += mib
        self.unsized += not mib

    def remove_share(self, key: str) -> int:
        mib = self.shares.pop(key, None)
        if mib is None:
            raise LedgerError("UnknownKey", f"no share {key} on GPU {self.uuid}")
        self.shared_mib -= mib
        self.unsized -= not mib
        return mib

    def give_whole(self, owner: str) -> None:
        if not self.takes_whole:
            raise LedgerError("NotFree", f"GPU {self.uuid} ({self.use}) cannot be allocated whole")
        self.whole = owner

    def take_back(self) -> str:
        if self.whole is None:
            raise LedgerError("UnknownKey", f"GPU {self.uuid} is not allocated whole")
        owner, self.whole = self.whole, None
        return owner

    def record(self) -> dict[str, object]:
        """The ledger as plain data, equal for equal contents."""
        return {
            "uuid": self.uuid,
            "facts": [
                self.facts.model.id,
                self.memory_mib,
                self.facts.mig,
                self.facts.healthy,
                self.facts.measured,
                self.facts.takes_shares,
            ],
            "state": self.state,
            "slices": [list(self.slices[key]) for key in sorted(self.slices)],
            "strays": sorted(self.strays),
            "shares": [[key, self.shares[key]] for key in sorted(self.shares)],
            "shared": self.shared_mib,
            "whole": self.whole,
            "reservation": self.reservation,
        }

    def _rebuild(self) -> None:
        self.state = grids.EMPTY
        self.strays.clear()
        for key in sorted(self.slices):
            if not self._enter(self.slices[key].placement):
                self.strays.add(key)
        for key in self.strays:
            placement = self.slices[key].placement
            self.state |= self.grid.units_of(placement.start, placement.size)

    def _enter(self, placement: SlicePlacement) -> bool:
        """Put a slice on its place if it is legal there; a stray's units are blocked after the legal ones."""
        shape = self.grid.shape(placement.profile)
        legal = (
            shape is not None and shape.size == placement.size and self.grid.legal(self.state, shape, placement.start)
        )
        if legal and shape is not None:
            self.state = self.grid.put(self.state, shape, placement.start)
        return legal
