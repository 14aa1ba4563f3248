"""Another way to slice can be added without touching the agent. Rule S13."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from apportion.apis.placements import SlicePlacement
from apportion.node.hardware import drivers
from apportion.node.hardware.partitioner import Gpu, PlacementTaken, ProfileFacts, Slice
from tests.node.agent_node import AgentNode

CARD = "CARD-0"


class Halves:
    """A card that can be shared by two, for want of anything better."""

    kind = "toy-halves"

    def __init__(self) -> None:
        self._made: dict[SlicePlacement, Slice] = {}
        self._numbers = itertools.count(1)

    async def configure(self, annotations: Mapping[str, str]) -> None:
        pass

    async def discover(self) -> Sequence[Gpu]:
        half = ProfileFacts("1g.8gb", size=1, starts=(0, 1))
        return [Gpu(CARD, "Toy Card", 16384, sliced=True, profiles=(half,))]

    async def slices(self) -> Sequence[Slice]:
        return list(self._made.values())

    async def create(self, place: SlicePlacement) -> Slice:
        if place in self._made:
            raise PlacementTaken(f"{place} is taken")
        self._made[place] = Slice(place, f"HALF-{next(self._numbers)}")
        return self._made[place]

    async def destroy(self, place: SlicePlacement) -> None:
        self._made.pop(place, None)

    def environment(self, uuids: Sequence[str]) -> Mapping[str, str]:
        return {"TOY_HALVES": " ".join(uuids)}

    async def close(self) -> None:
        pass


async def test_s13_a_toy_partitioner_is_served_like_any_other(bare: AgentNode, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Halves()
    monkeypatch.setattr("tests.node.agent_node.GPUS", [CARD])
    bare.make_driver = lambda: toy
    await bare.start_agent()
    assert bare.kubelet.totals() == {"mig.das.com/1g.8gb": (2, 2), "gpu.das.com/mem": (16, 16)}
    accelerator = await bare.accelerator()
    assert accelerator.spec.accelerator_type == "toy-halves"
    pod = await bare.pod("a", {"mig.das.com/1g.8gb": 2})
    for index in (0, 1):
        await bare.claim(pod, "1g.8gb", index, size=1, index=index)
    await bare.bind(pod)
    assert await bare.run(pod) == {"TOY_HALVES": "HALF-1 HALF-2"}
    await bare.delete(pod)
    await bare.eventually(bare.clean, "all is gone")
    assert await toy.slices() == []


def test_s13_other_packages_add_theirs_by_an_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = importlib.metadata.EntryPoint("halves", f"{__name__}:make", drivers.ENTRY_POINTS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [entry])
    assert sorted(drivers.all_drivers({})) == ["halves", "nvml"]
    assert drivers.open_driver("halves", drivers.Site("n", tmp_path), {}).kind == "toy-halves"


def make(_: drivers.Site) -> Halves:
    return Halves()
