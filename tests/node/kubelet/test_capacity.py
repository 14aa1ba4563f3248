"""How many devices a node announces."""

from __future__ import annotations

from apportion.node.hardware.partitioner import Gpu, ProfileFacts
from apportion.node.kubelet import capacity


def test_m03_ids_that_containers_hold_stay_healthy_when_a_gpu_is_lost() -> None:
    ids = capacity.device_ids("mig.das.com/1g.5gb-plus-me", 4)
    assert ids == [f"1g.5gb-plus-me-{n}" for n in range(4)]
    assert capacity.choose_healthy(ids, 2, frozenset({ids[3]})) == {ids[0], ids[3]}


def test_m03_a_gpu_that_is_not_sliced_counts_for_nothing() -> None:
    whole = Gpu("g", "Tesla T4", 15360, sliced=False)
    sick = Gpu("h", "Card", 8192, sliced=True, profiles=(ProfileFacts("1g.8gb", 1, (0,)),), fault="lost")
    assert capacity.amounts([whole, sick]) == {
        "mig.das.com/1g.8gb": capacity.Amount(1, 0),
        "gpu.das.com/mem": capacity.Amount(8, 0),
    }
