"""M01: GPU memory follows the slices, and a value that the user wrote is respected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apportion.apis.errors import InputError
from tests.admission.samples import both, created, patch, resources
from tests.builders.pods import container, pod

RECORD = "apportion.io/injected-memory"


@pytest.mark.parametrize(
    ("asks", "gigabytes"),
    [
        ({"nvidia.com/mig-1g.5gb": "2"}, "10"),
        ({"nvidia.com/mig-1g.5gb": "1", "nvidia.com/mig-2g.10gb": "1"}, "15"),
        ({"mig.das.com/1g.5gb": "3"}, "15"),
        ({"mig.das.com/1g.5gb-plus-me": "1", "nvidia.com/mig-7g.40gb": "2"}, "85"),
    ],
)
def test_m01_memory_is_the_sum_of_profile_gigabytes_times_quantity(asks: dict[str, str], gigabytes: str) -> None:
    after = resources(created(pod("story", containers=[container(limits=asks)])))
    assert after["limits"]["gpu.das.com/mem"] == after["requests"]["gpu.das.com/mem"] == gigabytes


def test_m01_each_container_counts_its_own_slices() -> None:
    after = created(
        pod(
            "story",
            containers=[
                container("a", limits={"nvidia.com/mig-1g.5gb": "1"}),
                container("b", limits={"nvidia.com/mig-2g.10gb": "2"}),
                container("c", limits={"cpu": "1"}),
            ],
            init=[container("i", limits={"nvidia.com/mig-3g.20gb": "1"})],
        )
    )
    assert resources(after, key="initContainers")["limits"]["gpu.das.com/mem"] == "20"
    assert [resources(after, index)["limits"].get("gpu.das.com/mem") for index in range(3)] == ["5", "20", None]
    assert json.loads(after["metadata"]["annotations"][RECORD]) == {"a": 5, "b": 20, "i": 20}


def test_m01_what_we_injected_is_computed_anew_when_the_slices_change() -> None:
    after = created(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"})]))
    for section in ("limits", "requests"):
        resources(after)[section]["mig.das.com/1g.5gb"] = "1"
    again = created(after)
    assert resources(again) == both({"mig.das.com/1g.5gb": "1", "gpu.das.com/mem": "5"})
    assert again["metadata"]["annotations"][RECORD] == '{"main":5}'


def test_m01_what_we_injected_goes_with_the_slices() -> None:
    after = created(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"})]))
    for section in ("limits", "requests"):
        del resources(after)[section]["mig.das.com/1g.5gb"]
    again = created(after)
    assert resources(again) == both({})
    assert RECORD not in again["metadata"]["annotations"]


@pytest.mark.parametrize("value", ["10", "12", 10, "10000m"])
def test_m01_a_users_value_stays_if_equal_or_larger(value: Any) -> None:
    after = created(
        pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2", "gpu.das.com/mem": value})])
    )
    assert resources(after)["limits"]["gpu.das.com/mem"] == value
    assert RECORD not in after["metadata"].get("annotations", {})
    assert patch(after) == []


@pytest.mark.parametrize("value", ["9", "0", 1])
def test_m01_a_smaller_value_of_the_user_is_refused(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        created(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2", "gpu.das.com/mem": value})]))
    assert caught.value.code == "TooLittleMemory"
    assert caught.value.field == "spec.containers[0].resources.limits[gpu.das.com/mem]"
    assert "10 or more" in caught.value.fix


@pytest.mark.parametrize("garbage", ["{", "[]", '{"main": "ten"}', '{"main": 4.5}', "null", ""])
def test_m01_a_forged_or_broken_record_gives_nobody_memory_for_less(garbage: str) -> None:
    asks = {"nvidia.com/mig-1g.5gb": "2", "gpu.das.com/mem": "1"}
    with pytest.raises(InputError):
        created(pod("story", containers=[container(limits=asks)], annotations={RECORD: garbage}))
    forged = created(pod("story", containers=[container(limits=asks)], annotations={RECORD: '{"main": 1}'}))
    assert resources(forged)["limits"]["gpu.das.com/mem"] == "10"


def test_m01_memory_without_slices_is_the_users_own() -> None:
    assert patch(pod("story", containers=[container(limits={"gpu.das.com/mem": "7"})])) == []
