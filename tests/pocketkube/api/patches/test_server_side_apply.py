"""Server-side apply: merging, pruning, ownership and conflicts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketkube.api.patches import field_set_encoding, field_sets, managed_fields, merge_types
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.status import ApiStatus
from tests.pocketkube.api.fuzzing import GOOD

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Obj = dict[str, Any]


def resource(group: str, plural: str) -> Resource:
    found = Registry.builtin().find(group, "v1", plural)
    assert found is not None
    return found


MAPS, DEPLOYMENTS, PODS = resource("", "configmaps"), resource("apps", "deployments"), resource("", "pods")


def apply(live: Obj | None, config: Obj, manager: str, *, force: bool = False, kind: Resource = MAPS) -> Obj:
    return managed_fields.applied(kind, live, config, manager, "", NOW, force=force)


def data(**values: str) -> Obj:
    return {"metadata": {"name": "x"}, "data": values} if values else {"metadata": {"name": "x"}}


def owners(obj: Obj) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in obj["metadata"].get("managedFields", []):
        paths = {field_sets.text(path) for path in field_sets.from_fields(entry["fieldsV1"])}
        found[f"{entry['manager']} {entry['operation']}"] = paths
    return found


def test_the_first_applier_owns_what_it_names_and_nothing_else() -> None:
    obj = apply(None, data(a="1", b="2"), "one")
    assert obj["data"] == {"a": "1", "b": "2"}
    assert owners(obj) == {"one Apply": {".data.a", ".data.b"}}


def test_what_an_applier_no_longer_names_goes() -> None:
    obj = apply(apply(None, data(a="1", b="2"), "one"), data(a="1"), "one")
    assert obj["data"] == {"a": "1"}
    assert owners(obj) == {"one Apply": {".data.a"}}


def test_what_somebody_else_owns_too_stays() -> None:
    obj = apply(apply(None, data(a="1", b="2"), "one"), data(b="2"), "two")
    obj = apply(obj, data(a="1"), "one")
    assert obj["data"] == {"a": "1", "b": "2"}
    assert owners(obj) == {"one Apply": {".data.a"}, "two Apply": {".data.b"}}


def test_another_value_is_a_conflict_that_names_field_and_manager() -> None:
    obj = apply(None, data(a="1", b="2"), "one")
    with pytest.raises(ApiStatus) as caught:
        apply(obj, data(a="2"), "two")
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert caught.value.details == {
        "causes": [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}]
    }


def test_several_conflicts_are_listed_by_manager() -> None:
    obj = apply(apply(None, data(a="1", b="1"), "one"), data(c="1"), "two")
    with pytest.raises(ApiStatus) as caught:
        apply(obj, data(a="2", b="2", c="2"), "three")
    assert caught.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\nconflicts with "two":\n- .data.c'
    )


def test_force_takes_the_field_away() -> None:
    obj = apply(apply(None, data(a="1", b="2"), "one"), data(a="2"), "two", force=True)
    assert obj["data"] == {"a": "2", "b": "2"}
    assert owners(obj) == {"one Apply": {".data.b"}, "two Apply": {".data.a"}}


def test_the_same_value_is_shared_without_conflict() -> None:
    obj = apply(apply(None, data(a="1"), "one"), data(a="1"), "two")
    assert owners(obj) == {"one Apply": {".data.a"}, "two Apply": {".data.a"}}


def test_an_update_takes_fields_from_appliers_and_they_then_conflict() -> None:
    live = apply(None, data(a="1", b="1"), "one")
    new = {**live, "metadata": dict(live["metadata"]), "data": {"a": "2", "b": "1"}}
    managed_fields.on_update(MAPS, new, live, "editor", "", NOW)
    assert owners(new) == {"one Apply": {".data.b"}, "editor Update": {".data.a"}}
    with pytest.raises(ApiStatus, match=r'conflict with "editor" using v1: \.data\.a'):
        apply(new, data(a="1", b="1"), "one")


def test_an_item_of_a_keyed_list_goes_with_its_owner_and_other_items_stay() -> None:
    def config(*containers: Obj) -> Obj:
        return {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": list(containers)}}}}

    one, two, extra = ({"name": name, "image": "i"} for name in ("one", "two", "extra"))
    live = apply(None, config(one, two), "a", kind=DEPLOYMENTS)
    live = apply(live, config(extra), "b", kind=DEPLOYMENTS)
    live = apply(live, config(two), "a", kind=DEPLOYMENTS)
    assert [each["name"] for each in live["spec"]["template"]["spec"]["containers"]] == ["two", "extra"]


def test_ports_are_told_apart_by_number_and_protocol_with_its_default() -> None:
    def config(*ports: Obj) -> Obj:
        return {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "ports": list(ports)}]}}

    live = apply(
        None, config({"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}), "a", kind=PODS
    )
    live = apply(live, config({"containerPort": 53}), "a", kind=PODS)
    assert live["spec"]["containers"][0]["ports"] == [{"containerPort": 53, "protocol": "TCP"}] or live["spec"][
        "containers"
    ][0]["ports"] == [{"containerPort": 53}]


def test_kubectl_takes_over_what_it_applied_from_the_client_side() -> None:
    annotation = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}'
    meta: Obj = {"name": "x", "annotations": {managed_fields.LAST_APPLIED: annotation}}
    live: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1"}}
    managed_fields.on_create(MAPS, live, "kubectl-client-side-apply", "", NOW)
    config = {"apiVersion": "v1", "kind": "ConfigMap", **data(a="2")}
    with pytest.raises(ApiStatus):
        apply(live, config, "other")
    assert apply(live, config, "kubectl")["data"] == {"a": "2"}


def test_more_than_ten_updaters_are_merged_into_one_of_old() -> None:
    live: Obj = {"metadata": {"name": "x"}, "data": {}}
    managed_fields.on_create(MAPS, live, "first", "", NOW)
    for number in range(15):
        new = {"metadata": dict(live["metadata"]), "data": {**live["data"], f"k{number}": "v"}}
        managed_fields.on_update(MAPS, new, live, f"m{number:02}", "", NOW)
        live = new
    updaters = [entry["manager"] for entry in live["metadata"]["managedFields"]]
    assert len(updaters) == managed_fields.MAX_UPDATERS
    assert managed_fields.ANCIENT in updaters


def test_field_sets_survive_their_wire_form() -> None:
    paths = {("f:a",), ("f:a", "f:b"), ("f:a", 'k:{"name":"x"}'), ("f:l", 'v:"y"')}
    fields = field_sets.to_fields(paths)
    assert fields == {"f:a": {".": {}, "f:b": {}, 'k:{"name":"x"}': {}}, "f:l": {'v:"y"': {}}}
    assert field_sets.from_fields(fields) == paths


elements = st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}', 'v:"y"'])
path_sets = st.sets(st.lists(elements, min_size=1, max_size=4).map(tuple), max_size=8)


@given(path_sets, path_sets)
def test_trees_of_fields_are_sets_of_paths(first: set[tuple[str, ...]], second: set[tuple[str, ...]]) -> None:
    tree = field_sets.to_fields(first)
    more, less = tree, tree
    for path in second:
        more, less = field_set_encoding.with_paths(more, [path]), field_set_encoding.without_paths(less, [path])
    assert field_sets.from_fields(more) == first | second
    assert field_sets.from_fields(less) == first - second
    assert more == field_sets.to_fields(first | second)
    assert less == field_sets.to_fields(first - second)
    assert tree == field_sets.to_fields(first)


@pytest.mark.parametrize("path", sorted(GOOD))
def test_what_a_new_object_adds_is_its_difference_from_nothing(path: str) -> None:
    pieces = [piece for piece in path.split("/") if piece]
    group, version = ("", pieces[1]) if pieces[0] == "api" else (pieces[1], pieces[2])
    kind = Registry.builtin().find(group, version, pieces[-1])
    node = merge_types.ANY if kind is None else merge_types.of_resource(kind)
    difference = field_sets.compare(node, {}, GOOD[path])
    assert field_sets.from_fields(field_set_encoding.of_new(node, GOOD[path])) == difference.added | difference.modified


values = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]), max_size=4)
steps = st.lists(
    st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from(["m", "n"]), values),
    min_size=1,
    max_size=6,
)


@given(steps)
def test_ownership_is_always_consistent(history: list[tuple[str, str, dict[str, str]]]) -> None:
    """Whatever happens: appliers own what they last applied unless it was taken; nothing owned is missing."""
    live: Obj = {"metadata": {"name": "x"}}
    managed_fields.on_create(MAPS, live, "creator", "", NOW)
    for how, manager, content in history:
        try:
            if how == "update":
                new = {"metadata": dict(live["metadata"]), **({"data": dict(content)} if content else {})}
                managed_fields.on_update(MAPS, new, live, manager, "", NOW)
                live = new
                assert live.get("data", {}) == content
            else:
                live = apply(live, data(**content), manager, force=how == "force")
                assert content.items() <= (live.get("data") or {}).items()
        except ApiStatus:
            if how != "apply":
                raise
            continue
        present = field_sets.of_object(merge_types.of_resource(MAPS), {"data": live.get("data") or {}})
        for entry in live["metadata"].get("managedFields", []):
            assert field_sets.from_fields(entry["fieldsV1"]) <= present | {("f:data",)}
        if how != "update":
            mine = owners(live).get(f"{manager} Apply", set())
            assert mine == {f".data.{key}" for key in content}


@given(values, values)
def test_applying_twice_changes_nothing_more(first: dict[str, str], second: dict[str, str]) -> None:
    live = apply(None, data(**first), "m")
    once = apply(live, data(**second), "m")
    assert apply(once, data(**second), "m") == once
    assert (once.get("data") or {}) == second
