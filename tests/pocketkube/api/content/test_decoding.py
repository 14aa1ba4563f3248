"""Objects as their typed form: wrong types are refused, unknown fields named, the rest is written canonically."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pocketkube.api import status
from pocketkube.api.content import canonical_quantities, decoding, field_models
from pocketkube.api.registry import Registry, Resource
from tests.pocketkube.api.content import accepted

Obj = dict[str, Any]
REGISTRY = Registry.builtin()


def resource(plural: str = "pods", group: str = "") -> Resource:
    found = REGISTRY.find(group, "v1", plural)
    assert found is not None
    return found


def pod(**spec: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [], **spec}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"nodeName": 7}, "cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string"),
        (
            {"containers": "x"},
            "cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"containers": [1]},
            "cannot unmarshal number into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            {"containers": [{"name": 5}]},
            "cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        ({"priority": 1.5}, "cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        (
            {"priority": 2**40},
            f"cannot unmarshal number {2**40} into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            {"activeDeadlineSeconds": "x"},
            "cannot unmarshal string into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
        ({"hostNetwork": "true"}, "cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        (
            {"nodeSelector": {"a": 1}},
            "cannot unmarshal number into Go struct field PodSpec.spec.nodeSelector of type string",
        ),
        (
            {"nodeSelector": []},
            "cannot unmarshal array into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
        ),
        ({"affinity": []}, "cannot unmarshal array into Go struct field PodSpec.spec.affinity of type v1.Affinity"),
        ({"overhead": {"cpu": "1x"}}, canonical_quantities.RULE),
        ({"overhead": {"cpu": True}}, canonical_quantities.RULE),
    ],
)
def test_a_wrong_type_is_refused_in_the_words_of_a_real_server(spec: Obj, why: str) -> None:
    with pytest.raises(status.ApiStatus) as refusal:
        decoding.canonical(resource(), pod(**spec))
    assert refusal.value.code == 400
    prefix = "" if why == canonical_quantities.RULE else "json: "
    assert refusal.value.message == f'Pod in version "v1" cannot be handled as a Pod: {prefix}{why}'


def test_unknown_fields_are_named_and_dropped() -> None:
    given = pod(foo=1, containers=[{"name": "c", "bar": {"deep": 1}}])
    kept, unknown = decoding.canonical(resource(), given)
    assert unknown == ["spec.containers[0].bar", "spec.foo"]
    assert "foo" not in kept["spec"]
    assert "bar" not in kept["spec"]["containers"][0]
    refusal = decoding.strict_error(resource(), unknown)
    assert refusal.message.endswith(
        'strict decoding error: unknown field "spec.containers[0].bar", unknown field "spec.foo"'
    )


def test_empty_values_are_left_out_and_zero_counts_are_kept() -> None:
    given = pod(volumes=[], nodeSelector={}, nodeName="", priority=0, hostNetwork=False, tolerations=None)
    given["metadata"] |= {"creationTimestamp": None, "labels": {}}
    kept, unknown = decoding.canonical(resource(), given)
    assert unknown == []
    assert kept == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p"},
        "spec": {"containers": [], "priority": 0},
        "status": {},
    }


def test_nulls_in_lists_and_maps_are_zero_values() -> None:
    kept, _ = decoding.canonical(resource(), pod(nodeSelector={"a": None}, containers=[None]))
    assert kept["spec"]["nodeSelector"] == {"a": ""}
    assert kept["spec"]["containers"] == [{"name": "", "resources": {}}]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        (2, "2"),
        (0.25, "250m"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("0.5Gi", "512Mi"),
        ("100Ki", "100Ki"),
        ("1e3", "1e3"),
        ("1500e3", "1500e3"),
        ("9E", "9E"),
        ("128974848", "128974848"),
        ("0", "0"),
        ("-1", "-1"),
        ("+1", "1"),
    ],
)
def test_quantities_are_written_canonically(given: Any, kept: str) -> None:
    assert canonical_quantities.canonical(given) == kept
    assert canonical_quantities.canonical(kept) == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.75Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z"),
    ],
)
def test_times_are_written_in_utc(given: str, kept: str) -> None:
    obj = pod() | {"metadata": {"creationTimestamp": given}}
    assert decoding.canonical(resource(), obj)[0]["metadata"]["creationTimestamp"] == kept


@pytest.mark.parametrize("given", ["x", "2024-01-02", "2024-13-02T03:04:05Z", "2024-01-02T03:04:05", 7])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(status.ApiStatus):
        decoding.canonical(resource(), pod() | {"metadata": {"creationTimestamp": given}})


def test_micro_times_keep_their_digits() -> None:
    lease = {"spec": {"renewTime": "2024-01-02T03:04:05.000120Z"}}
    kept, _ = decoding.canonical(resource("leases", "coordination.k8s.io"), lease)
    assert kept["spec"]["renewTime"] == "2024-01-02T03:04:05.000120Z"


def test_secrets_hold_base64() -> None:
    with pytest.raises(status.ApiStatus) as refusal:
        decoding.canonical(resource("secrets"), {"data": {"a": "&&"}})
    assert refusal.value.message.endswith("illegal base64 data at input byte 0")


def test_metadata_of_custom_objects() -> None:
    kept, unknown = decoding.canonical_metadata(
        {"name": "x", "labels": {"a": "b"}, "creationTimestamp": None, "foo": 1}
    )
    assert (kept, unknown) == ({"name": "x", "labels": {"a": "b"}}, ["metadata.foo"])
    with pytest.raises(status.ApiStatus):
        decoding.canonical_metadata({"labels": {"a": 1}})
    with pytest.raises(status.ApiStatus):
        decoding.canonical_metadata("x")


def test_every_served_kind_has_a_shape_whose_fields_are_known() -> None:
    for each in REGISTRY:
        assert each.model is not None
        _follow(each.model, set())


def _follow(model: str, seen: set[str]) -> None:
    if model in seen:
        return
    seen.add(model)
    for field in field_models.shape(model).fields.values():
        assert field.numbers or field.name in ("apiVersion", "kind"), (model, field.name)
        kind = field.type
        while kind.of is not None:
            kind = kind.of
        if kind.form == "struct":
            _follow(kind.name, seen)


JSON = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**65), 2**65)
    | some.floats(allow_nan=False)
    | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=400)
@given(some.data())
def test_the_quick_way_and_the_careful_way_agree(data: some.DataObject) -> None:
    """Whatever is changed in a good object: both refuse it, or both make the same of it."""
    name = data.draw(some.sampled_from(sorted(accepted.CASES)))
    version, plural, obj = accepted.CASES[name]
    found = REGISTRY.find(*version.rpartition("/")[::2], plural)
    assert found is not None
    assert found.model is not None
    bent = copy.deepcopy(obj)
    _bend(data, bent)
    outcomes = []
    unknown: list[str] = []
    with suppress(status.ApiStatus):
        outcomes.append(decoding.canonical(found, bent)[0])
    with suppress(status.ApiStatus):
        typed = decoding._repaired(found, found.model, bent, unknown)
        outcomes.append(msgspec.to_builtins(typed, enc_hook=decoding._encode))
    assert len(outcomes) in (0, 2)
    assert not outcomes or outcomes[0] == outcomes[1]
    if outcomes:
        assert decoding.canonical(found, outcomes[0]) == (outcomes[0], [])


def _bend(data: some.DataObject, obj: Any) -> None:
    """Replaces one value somewhere inside."""
    place = obj
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = data.draw(some.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(some.booleans()):
            place[key] = data.draw(JSON)
            return
        place = inner
