"""Strategic merge patch: directives, merge keys, order."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketkube.api.patches import merge_types, strategic_merge_patch
from pocketkube.api.patches.errors import PatchError
from pocketkube.api.registry import Registry

_DEPLOYMENTS = Registry.builtin().find("apps", "v1", "deployments")
assert _DEPLOYMENTS is not None
DEPLOYMENT = merge_types.of_resource(_DEPLOYMENTS)


def deployment(*containers: dict[str, Any], **template: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": list(containers), **template}}}}


def containers(obj: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"]["template"]["spec"]["containers"]
    return found


BEFORE = deployment({"name": "a", "image": "1"}, {"name": "b", "image": "2"})


def test_a_list_with_a_merge_key_merges_by_it_and_keeps_what_the_patch_does_not_name() -> None:
    result = strategic_merge_patch.apply(DEPLOYMENT, BEFORE, deployment({"name": "b", "image": "3"}))
    assert containers(result) == [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]


def test_items_are_deleted_by_directive() -> None:
    result = strategic_merge_patch.apply(DEPLOYMENT, BEFORE, deployment({"$patch": "delete", "name": "a"}))
    assert containers(result) == [{"name": "b", "image": "2"}]


def test_a_list_is_replaced_by_directive() -> None:
    patch = deployment({"name": "z", "image": "9"}, {"$patch": "replace"})
    assert containers(strategic_merge_patch.apply(DEPLOYMENT, BEFORE, patch)) == [{"name": "z", "image": "9"}]


def test_a_map_is_replaced_or_emptied_by_directive() -> None:
    before = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    replaced = strategic_merge_patch.apply(
        DEPLOYMENT, before, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}
    )
    assert replaced == {"metadata": {"labels": {"c": "3"}}}
    emptied = strategic_merge_patch.apply(DEPLOYMENT, before, {"metadata": {"labels": {"$patch": "delete"}}})
    assert emptied == {"metadata": {"labels": {}}}


def test_retain_keys_drops_what_it_does_not_name() -> None:
    before = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_merge_patch.apply(DEPLOYMENT, before, patch) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_the_order_of_elements_is_enforced_and_others_keep_their_place() -> None:
    patch = deployment({"name": "c", "image": "3"})
    patch["spec"]["template"]["spec"]["$setElementOrder/containers"] = [{"name": "c"}, {"name": "a"}]
    names = [each["name"] for each in containers(strategic_merge_patch.apply(DEPLOYMENT, BEFORE, patch))]
    assert names.index("c") < names.index("a")
    assert set(names) == {"a", "b", "c"}


def test_primitive_lists_merge_and_lose_by_directive() -> None:
    before = {"metadata": {"finalizers": ["a", "b"]}}
    added = strategic_merge_patch.apply(DEPLOYMENT, before, {"metadata": {"finalizers": ["c"]}})
    assert sorted(added["metadata"]["finalizers"]) == ["a", "b", "c"]
    gone = strategic_merge_patch.apply(DEPLOYMENT, before, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})
    assert gone == {"metadata": {"finalizers": ["b"]}}


def test_a_list_without_merge_strategy_is_replaced() -> None:
    before = deployment(tolerations=[{"key": "a"}])
    result = strategic_merge_patch.apply(
        DEPLOYMENT, before, {"spec": {"template": {"spec": {"tolerations": [{"key": "b"}]}}}}
    )
    assert result["spec"]["template"]["spec"]["tolerations"] == [{"key": "b"}]


def test_nulls_delete_and_never_stay() -> None:
    before = {"spec": {"replicas": 1, "paused": True}}
    assert strategic_merge_patch.apply(DEPLOYMENT, before, {"spec": {"paused": None, "minReadySeconds": None}}) == {
        "spec": {"replicas": 1}
    }
    assert strategic_merge_patch.apply(DEPLOYMENT, {}, {"metadata": {"labels": {"a": None, "b": "1"}}}) == {
        "metadata": {"labels": {"b": "1"}}
    }


@pytest.mark.parametrize(
    "patch",
    [
        deployment({"image": "x"}),
        deployment({"name": "a", "$patch": "nonsense"}),
        deployment({"name": "a", "$patch": "merge"}),
        {"spec": {"$patch": "nonsense"}},
        {"spec": {"strategy": {"$retainKeys": "type"}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}},
        {"spec": {"template": {"spec": {"$setElementOrder/containers": "a"}}}},
        {"spec": {"template": {"spec": {"$setElementOrder": []}}}},
        {"spec": {"template": {"spec": {"$deleteFromPrimitiveList/containers": "x"}}}},
        {"spec": {"template": {"spec": {"containers": ["a"]}}}},
        {
            "spec": {
                "template": {"spec": {"$setElementOrder/containers": [{"name": "z"}], "containers": [{"name": "y"}]}}
            }
        },
    ],
)
def test_bad_patches_are_refused(patch: dict[str, Any]) -> None:
    before = {"spec": {**BEFORE["spec"], "strategy": {"type": "Recreate"}}}
    with pytest.raises(PatchError):
        strategic_merge_patch.apply(DEPLOYMENT, before, patch)


names = st.sampled_from(["a", "b", "c", "d"])
container_lists = st.lists(
    st.builds(lambda name, image: {"name": name, "image": image}, names, st.sampled_from(["1", "2"])),
    unique_by=lambda each: each["name"],
    max_size=4,
)


def difference(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """The patch that kubectl would send to come from one list of containers to the other."""
    kept = {each["name"] for each in after}
    changed = [each for each in after if each not in before]
    gone = [{"$patch": "delete", "name": each["name"]} for each in before if each["name"] not in kept]
    inner: dict[str, Any] = {"$setElementOrder/containers": [{"name": each["name"]} for each in after]}
    if changed or gone:
        inner["containers"] = [*changed, *gone]
    return {"spec": {"template": {"spec": inner}}}


@given(container_lists, container_lists)
def test_a_patch_of_differences_comes_from_one_list_to_the_other_in_order(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    original = deployment(*before)
    untouched = copy.deepcopy(original)
    result = strategic_merge_patch.apply(DEPLOYMENT, original, difference(before, after))
    assert containers(result) == after
    assert original == untouched


@given(container_lists, container_lists)
def test_a_patch_applied_twice_changes_nothing_more(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    patch = difference(before, after)
    once = strategic_merge_patch.apply(DEPLOYMENT, deployment(*before), patch)
    assert strategic_merge_patch.apply(DEPLOYMENT, once, patch) == once
