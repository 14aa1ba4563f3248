"""A manifest applied again becomes what its pod has, by what the pod's annotation says (D05)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from apportion.admission.fallback import tier_replacement
from apportion.admission.fallback.tiers import FallbackOptions
from apportion.apis import names
from tests.admission.fallback.cluster import asked, fallback
from tests.builders.pods import container, fallback_pod

LADDER = ("7g.70gb", "3g.40gb", "2g.20gb", "1g.10gb")


def fallen(given: dict[str, Any], steps: int, *, keep_memory: bool = False) -> dict[str, Any]:
    after = copy.deepcopy(given)
    assert tier_replacement.step(after, "spec", FallbackOptions(LADDER, keep_memory=keep_memory), steps)
    return after


def again(given: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    after = copy.deepcopy(given)
    tier_replacement.repeat(after, old, "spec")
    return after


@pytest.mark.parametrize("keep_memory", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_d05_each_profile_goes_where_it_went_before(steps: int, keep_memory: bool) -> None:  # noqa: FBT001
    devices = {"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-1g.5gb": 1}
    two = container("two", mig={"7g.70gb": 1})
    given = fallback_pod(containers=[container(limits=devices), two])
    old = fallen(given, steps, keep_memory=keep_memory)
    new = again(given, old)
    assert (asked(new), fallback(new)) == (asked(old), fallback(old))
    assert [c["resources"] for c in new["spec"]["containers"]] == [c["resources"] for c in old["spec"]["containers"]]


def test_d05_another_number_of_devices_is_a_change_that_the_api_server_refuses() -> None:
    old = fallen(
        fallback_pod(limits={"nvidia.com/mig-2g.20gb": 2}, annotations={names.FALLBACK_KEEP_MEMORY: "false"}), 1
    )
    wanted = fallback_pod(limits={"nvidia.com/mig-2g.20gb": 1})  # as many if memory were kept
    assert again(wanted, old) == wanted


@pytest.mark.parametrize("written", ["->", "x->y", "2g.20gb", "2g.20gb->", ",", "2g.20gb->1g.10gb->💾"])
def test_d04_an_annotation_that_is_no_path_counts_as_none(written: str) -> None:
    old = fallback_pod(limits={"nvidia.com/mig-1g.10gb": 1}, annotations={names.FALLBACK_APPLIED: written})
    assert again(fallback_pod(), old) == fallback_pod()
