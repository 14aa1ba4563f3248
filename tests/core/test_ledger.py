"""The ledger of a GPU: no sequence of changes creates an overlap, loses a unit or overcommits."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apportion.apis.errors import LedgerError
from apportion.apis.placements import SlicePlacement
from apportion.core.fleet_facts import GpuFacts, HeldSlice
from apportion.core.ledger import GpuLedger, Use
from tests.builders.accelerators import A100, T4, model

PROFILES = [profile.name for profile in model(A100).profiles]


class SlicedGpu(RuleBasedStateMachine):
    """Slices come and go, decided by us or seen in the cluster, legal or not."""

    def __init__(self) -> None:
        super().__init__()
        self.gpu = GpuLedger(GpuFacts("gpu", model(A100), mig=True))
        self.placed: dict[str, HeldSlice] = {}
        self.count = 0

    @rule(profile=st.sampled_from(PROFILES), start=st.integers(0, 8))
    def place(self, profile: str, start: int) -> None:
        shape = self.gpu.grid.shape(profile)
        assert shape is not None
        if self.gpu.takes_slices and self.gpu.grid.legal(self.gpu.state, shape, start):
            self.adopt(profile, start, shape.size)

    @rule(profile=st.sampled_from([*PROFILES, "9g.99gb"]), start=st.integers(0, 7), size=st.integers(1, 8))
    def adopt(self, profile: str, start: int, size: int) -> None:
        self.count += 1
        key = f"slice-{self.count}"
        held = HeldSlice(key, SlicePlacement("gpu", profile, start, size), "pod")
        self.gpu.adopt_slice(held)
        self.placed[key] = held

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.placed:
            key = data.draw(st.sampled_from(sorted(self.placed)))
            assert self.gpu.remove_slice(key) == self.placed.pop(key)

    @invariant()
    def units_are_those_of_the_slices(self) -> None:
        taken = 0
        for held in self.placed.values():
            taken |= ((1 << held.placement.size) - 1) << held.placement.start
        assert self.gpu.state & self.gpu.grid.full == taken & self.gpu.grid.full

    @invariant()
    def legal_slices_do_not_overlap(self) -> None:
        taken = 0
        for key, held in self.placed.items():
            if key in self.gpu.strays:
                continue
            mask = ((1 << held.placement.size) - 1) << held.placement.start
            assert not taken & mask
            taken |= mask

    @invariant()
    def nothing_remains_when_all_are_gone(self) -> None:
        if not self.placed:
            assert self.gpu.state == 0
            assert self.gpu.use is Use.FREE

    @invariant()
    def offered_places_are_free(self) -> None:
        for shape in self.gpu.grid.ordered:
            for start in self.gpu.grid.places(self.gpu.state, shape):
                assert not self.gpu.state & shape.mask(start)


class SharedGpu(RuleBasedStateMachine):
    """A GPU outside MIG mode: shared or whole, never both, never beyond its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.gpu = GpuLedger(GpuFacts("gpu", model(T4), mig=False))
        self.shares: dict[str, int] = {}
        self.count = 0

    @rule(mib=st.integers(-10, 20_000))
    def share(self, mib: int) -> None:
        if not 0 < mib <= self.gpu.free_mib:
            return
        self.count += 1
        key = f"pod-{self.count}"
        self.gpu.adopt_share(key, mib)
        self.shares[key] = mib

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.shares:
            key = data.draw(st.sampled_from(sorted(self.shares)))
            assert self.gpu.remove_share(key) == self.shares.pop(key)

    @rule()
    def give(self) -> None:
        try:
            self.gpu.give_whole("pod")
        except LedgerError:
            assert self.gpu.use is not Use.FREE
        else:
            assert not self.shares

    @rule()
    def take_back(self) -> None:
        if self.gpu.whole is not None:
            self.gpu.take_back()

    @invariant()
    def memory_adds_up(self) -> None:
        assert self.gpu.shared_mib == sum(self.shares.values()) <= self.gpu.memory_mib
        assert self.gpu.free_mib == (0 if self.gpu.whole else self.gpu.memory_mib - self.gpu.shared_mib)

    @invariant()
    def one_use_at_a_time(self) -> None:
        assert not (self.gpu.whole is not None and self.shares)


TestSlicedGpu = SlicedGpu.TestCase
TestSlicedGpu.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSharedGpu = SharedGpu.TestCase
TestSharedGpu.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_s09_a_gpu_outside_mig_mode_is_never_sliced() -> None:
    gpu = GpuLedger(GpuFacts("gpu", model(A100), mig=False))
    assert not gpu.takes_slices


def test_s09_a_gpu_in_mig_mode_is_never_shared_or_given_whole() -> None:
    gpu = GpuLedger(GpuFacts("gpu", model(A100), mig=True))
    assert gpu.free_mib == 0
    with pytest.raises(LedgerError):
        gpu.give_whole("pod")


def test_s09_an_unhealthy_gpu_takes_nothing() -> None:
    assert not GpuLedger(GpuFacts("gpu", model(A100), mig=True, healthy=False)).takes_slices
    assert GpuLedger(GpuFacts("gpu", model(T4), mig=False, healthy=False)).free_mib == 0


def test_s06_overlapping_claims_block_their_units_until_one_goes() -> None:
    gpu = GpuLedger(GpuFacts("gpu", model(A100), mig=True))
    gpu.adopt_slice(HeldSlice("first", SlicePlacement("gpu", "3g.20gb", 0, 4), "a"))
    gpu.adopt_slice(HeldSlice("second", SlicePlacement("gpu", "2g.10gb", 2, 2), "b"))
    assert gpu.strays == {"second"}
    gpu.remove_slice("first")
    assert not gpu.strays
    shape = gpu.grid.shape("2g.10gb")
    assert shape is not None
    assert gpu.grid.places(gpu.state, shape) == (0, 4)
