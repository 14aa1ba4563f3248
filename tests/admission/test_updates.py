"""D05: patches are exact and idempotent, and the same manifest can be applied again."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.admission import json_diff
from apportion.apis.errors import InputError
from tests.admission.samples import A100, both, created, patch, resources, updated
from tests.builders.pods import container, pod

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, width=16) | st.text(max_size=3)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~0", max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(DOCUMENTS, DOCUMENTS)
def test_d05_a_difference_applied_gives_the_new_document(old: Any, new: Any) -> None:
    operations = json_diff.difference({"x": old}, {"x": new})
    assert strict(jsonpatch.apply_patch({"x": old}, operations)) == strict({"x": new})
    assert json_diff.difference(new, copy.deepcopy(new)) == []


SPELLINGS = st.sampled_from(
    [f"nvidia.com/mig-{name}" for name in sorted(A100 - {"1g.5gb+me"})]
    + ["nvidia.com/mig-1g.5gb.me", "mig.das.com/1g.5gb", "mig.das.com/1g.5gb-plus-me", "gpu.das.com/mem", "cpu"]
)
AMOUNTS = st.sampled_from(["0", "1", "2", 1, 3, "1000m", "40", "-1", "0.5"])
SECTION = st.none() | st.dictionaries(SPELLINGS, AMOUNTS, max_size=3)
RECORDS = st.none() | st.sampled_from(['{"c0":5}', '{"c0":10,"c1":1}', "broken"])


@st.composite
def any_pods(draw: st.DrawFn) -> dict[str, Any]:
    made = [
        container(f"c{index}", limits=draw(SECTION), requests=draw(SECTION)) | {"unheardOf": {"a": [index]}}
        for index in range(draw(st.integers(1, 3)))
    ]
    split = draw(st.integers(0, len(made) - 1))
    record = draw(RECORDS)
    spec = {"schedulerName": draw(st.sampled_from(["", "default-scheduler", "das-scheduler", "kai-scheduler"]))}
    annotations = {"apportion.io/injected-memory": record} if record else None
    return pod("story", containers=[*made[split:]], init=made[:split], annotations=annotations, **spec)


@given(any_pods())
def test_d05_applying_the_patch_twice_changes_nothing_and_unknown_fields_survive(before: dict[str, Any]) -> None:
    try:
        operations = patch(before)
    except InputError:
        return
    after = jsonpatch.apply_patch(before, operations)
    assert strict(after) == strict(created(before))
    assert patch(after) == []
    assert updated(after, after) == after
    for key in ("containers", "initContainers"):
        for one, other in zip(before["spec"].get(key, []), after["spec"].get(key, []), strict=True):
            assert other["unheardOf"] == one["unheardOf"]
            assert other["image"] == one["image"]


MANIFEST = pod(
    "story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"}), container("quiet", limits={"cpu": "1"})]
)


def test_d05_a_second_apply_of_the_same_manifest_leaves_the_pod_as_it_is() -> None:
    live = created(MANIFEST)
    merged = copy.deepcopy(live)
    resources(merged)["limits"]["nvidia.com/mig-1g.5gb"] = "2"  # what kubectl's three-way merge sends
    assert updated(merged, live) == live


def test_d05_a_replaced_manifest_is_brought_into_the_same_form() -> None:
    live = created(
        pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"})], schedulerName="default-scheduler")
    )
    again = pod(
        "story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"})], schedulerName="default-scheduler"
    )
    assert updated(again, live) == live


def test_d05_an_update_does_not_decide_again() -> None:
    static = pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1"})])
    assert updated(static, static) == static


def test_d05_another_number_of_slices_is_refused_with_the_way_out() -> None:
    live = created(MANIFEST)
    merged = copy.deepcopy(live)
    resources(merged)["limits"]["nvidia.com/mig-1g.5gb"] = "3"
    with pytest.raises(InputError, match="delete the pod and create it again") as caught:
        updated(merged, live)
    assert caught.value.code == "ImmutableSlices"


def test_d05_other_changes_pass_untouched() -> None:
    live = created(MANIFEST)
    changed = copy.deepcopy(live)
    changed["metadata"]["labels"] = {"a": "b"}
    changed["spec"]["containers"][1]["image"] = "busybox:1.37"
    assert updated(changed, live) == changed
    assert resources(changed) == both({"mig.das.com/1g.5gb": "2", "gpu.das.com/mem": "10"})


def strict(value: Any) -> Any:
    """Equal only if the JSON is: Python takes True, 1 and 1.0 for one."""
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [strict(inner) for inner in value]
    return (type(value).__name__, value)
