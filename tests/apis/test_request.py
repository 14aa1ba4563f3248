"""A pod is read once: slices per container, shares, effective resources, and what can never be right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.apis import names
from apportion.apis.errors import ApportionError, RequestError
from apportion.apis.pods import Pod
from apportion.apis.request import Request, SliceRequest, parse_pod
from tests.builders.pods import container


def read(spec: dict[str, Any], annotations: dict[str, str] | None = None, **metadata: Any) -> Request:
    wire = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations or {}, **metadata},
        "spec": spec,
    }
    return parse_pod(msgspec.convert(wire, Pod))


def shared(annotations: dict[str, str], limits: dict[str, Any] | None = None) -> Request:
    return read({"schedulerName": names.KAI_SCHEDULER, "containers": [container("main", limits=limits)]}, annotations)


SMALL, LARGE = "mig.das.com/1g.5gb", "mig.das.com/2g.10gb"


def test_s06_a_containers_slices_are_counted_by_profile_name() -> None:
    request = read({"containers": [container("c", limits={LARGE: 1, SMALL: 2})]})
    assert request.slices == (
        SliceRequest("c", ("c",), "1g.5gb", 0),
        SliceRequest("c", ("c",), "1g.5gb", 1),
        SliceRequest("c", ("c",), "2g.10gb", 2),
    )


def test_s04_an_init_container_uses_the_slice_of_a_later_one() -> None:
    request = read(
        {"initContainers": [container("i", limits={SMALL: 1})], "containers": [container("c", limits={SMALL: 1})]}
    )
    assert request.slices == (SliceRequest("c", ("i", "c"), "1g.5gb", 0),)
    assert request.resources == {SMALL: 1}


def test_s04_more_slices_in_an_init_container_are_its_own() -> None:
    request = read(
        {"initContainers": [container("i", limits={SMALL: 3})], "containers": [container("c", limits={SMALL: 1})]}
    )
    assert request.slices == (
        SliceRequest("i", ("i",), "1g.5gb", 0),
        SliceRequest("i", ("i",), "1g.5gb", 1),
        SliceRequest("c", ("i", "c"), "1g.5gb", 0),
    )
    assert request.resources == {SMALL: 3}


def test_s04_sidecars_add_up_and_take_over_what_an_init_container_left() -> None:
    sidecar = container("s", limits={SMALL: 1}, restartPolicy="Always")
    request = read(
        {
            "initContainers": [container("i", limits={SMALL: 1}), sidecar],
            "containers": [container("c", limits={SMALL: 1})],
        }
    )
    assert request.slices == (
        SliceRequest("s", ("i", "s"), "1g.5gb", 0),
        SliceRequest("c", ("c",), "1g.5gb", 0),
    )
    assert request.resources == {SMALL: 2}


def test_s04_different_profiles_exist_side_by_side() -> None:
    request = read(
        {"initContainers": [container("i", limits={LARGE: 1})], "containers": [container("c", limits={SMALL: 1})]}
    )
    assert {(want.container, want.profile) for want in request.slices} == {("i", "2g.10gb"), ("c", "1g.5gb")}


def test_s04_a_sidecar_before_an_init_container_keeps_running_beside_it() -> None:
    sidecar = container("s", limits={"cpu": "1", SMALL: 1}, restartPolicy="Always")
    request = read(
        {
            "initContainers": [sidecar, container("i", limits={"cpu": "2", SMALL: 2})],
            "containers": [container("c", limits={"cpu": "1", SMALL: 1})],
        }
    )
    assert request.resources == {"cpu": 3000, SMALL: 3}
    assert len(request.slices) == 3


def test_s04_resources_are_the_larger_of_init_and_apps_plus_overhead() -> None:
    request = read(
        {
            "initContainers": [container("i", limits={"cpu": "3", "memory": "1Gi"})],
            "containers": [
                container("a", limits={"cpu": "1", "memory": "1Gi"}),
                container("b", limits={"cpu": "500m", "memory": "1Gi"}),
            ],
            "overhead": {"cpu": "250m", "memory": "64Mi"},
        }
    )
    assert request.resources == {"cpu": 3250, "memory": 2 * 2**30 + 2**26}


def test_s04_requests_come_before_limits_and_pod_level_amounts_before_both() -> None:
    asked = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "memory": "1Gi"}}}
    assert read({"containers": [asked]}).resources == {"cpu": 1000, "memory": 2**30}
    request = read({"containers": [asked], "resources": {"requests": {"cpu": "2"}}})
    assert request.resources == {"cpu": 2000, "memory": 2**30}


def test_s03_quantity_zero_is_ignored() -> None:
    assert read({"containers": [container("c", limits={SMALL: 0, names.NVIDIA_GPU: "0"})]}).wants_gpu is False


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({SMALL: "-1"}, "NegativeQuantity"),
        ({SMALL: "0.5"}, "InvalidQuantity"),
        ({SMALL: "many"}, "InvalidQuantity"),
        ({SMALL: 1001}, "TooManySlices"),
        ({names.NVIDIA_GPU: "1500m"}, "InvalidQuantity"),
        ({"cpu": "-2"}, "NegativeQuantity"),
        ({"memory": "1gb"}, "InvalidQuantity"),
    ],
)
def test_s03_bad_quantities_are_refused_with_field_value_and_fix(limits: dict[str, str], code: str) -> None:
    with pytest.raises(RequestError) as refused:
        read({"containers": [container("c", limits=limits)]})
    error = refused.value
    ((name, value),) = limits.items()
    assert error.code == code
    assert name in error.field
    assert "c" in error.field
    assert error.value == value
    assert error.fix


def test_g02_shares_are_read_in_integers() -> None:
    share = shared({names.GPU_FRACTION: "0.5"}).share
    assert share is not None
    assert (share.milli, share.mib_on(15360), share.milli_on(15360)) == (500, 7680, 500)
    share = shared({names.GPU_SHARE_MEMORY: "2000", names.GPU_FRACTION_DEVICES: "2"}).share
    assert share is not None
    assert (share.memory_mib, share.devices, share.milli_on(15360)) == (2000, 2, 131)


@pytest.mark.parametrize(
    "value", ["NaN", "1e-3", "0", "0.0", "1", "1.0", "-0.5", "0.0001", "0.009", "", " 0.5", "0,5", "½", "+0.5"]
)
def test_g02_bad_fractions_are_refused(value: str) -> None:
    with pytest.raises(RequestError) as refused:
        shared({names.GPU_FRACTION: value})
    assert refused.value.field == f"metadata.annotations[{names.GPU_FRACTION}]"
    assert refused.value.code == "InvalidShare"


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "2Gi", "NaN", "1e3", str(10**18), "007", ""])
def test_g02_bad_amounts_of_memory_are_refused(value: str) -> None:
    with pytest.raises(RequestError) as refused:
        shared({names.GPU_SHARE_MEMORY: value})
    assert refused.value.field == f"metadata.annotations[{names.GPU_SHARE_MEMORY}]"


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({names.GPU_FRACTION: "0.5", names.GPU_SHARE_MEMORY: "100"}, {}),
        ({names.GPU_FRACTION: "0.5"}, {names.NVIDIA_GPU: 1}),
        ({names.GPU_FRACTION: "0.5"}, {SMALL: 1}),
        ({names.GPU_SHARE_MEMORY: "100"}, {"nvidia.com/mig-1g.5gb": 1}),
        ({names.GPU_FRACTION_DEVICES: "2"}, {}),
        ({names.GPU_FRACTION: "0.5", names.GPU_FRACTION_DEVICES: "0"}, {}),
        ({names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER: "ghost"}, {}),
    ],
)
def test_g02_contradictions_are_refused(annotations: dict[str, str], limits: dict[str, int]) -> None:
    with pytest.raises(RequestError):
        shared(annotations, limits)


def test_d03_a_share_under_another_scheduler_has_no_effect() -> None:
    request = read(
        {"schedulerName": names.DAS_SCHEDULER, "containers": [container("c")]}, {names.GPU_FRACTION: "nonsense"}
    )
    assert request.share is None


def test_g03_the_share_goes_to_the_named_container() -> None:
    spec = {"schedulerName": names.KAI_SCHEDULER, "containers": [container("a"), container("b")]}
    assert (share := read(spec, {names.GPU_FRACTION: "0.5"}).share) is not None
    assert share.container == "a"
    named = read(spec, {names.GPU_FRACTION: "0.5", names.GPU_FRACTION_CONTAINER: "b"}).share
    assert named is not None
    assert named.container == "b"


def test_s05_an_unknown_policy_is_refused() -> None:
    with pytest.raises(RequestError, match="fragmentation, pack, spread") as refused:
        read({"containers": []}, {names.POLICY: "tetris"})
    assert refused.value.code == "UnknownPolicy"


def test_q02_queue_group_and_priority_come_along() -> None:
    request = read(
        {"containers": [], "priority": 75, "priorityClassName": "build"},
        {names.POD_GROUP: "gang"},
        labels={names.QUEUE_LABEL: "team-a"},
    )
    assert (request.queue, request.group, request.priority, request.priority_class) == ("team-a", "gang", 75, "build")


def test_s04_host_ports_of_the_network_and_of_sidecars_count() -> None:
    sidecar = container("s", restartPolicy="Always", ports=[{"containerPort": 1, "hostPort": 81}])
    ordinary = container("i", ports=[{"containerPort": 1, "hostPort": 82}])
    app = container("c", ports=[{"containerPort": 80, "hostPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"}])
    request = read({"initContainers": [sidecar, ordinary], "containers": [app]})
    assert [(port.protocol, port.ip, port.port) for port in request.rules.ports] == [
        ("TCP", "0.0.0.0", 81),
        ("UDP", "10.0.0.1", 80),
    ]


def test_every_refusal_is_in_one_tree() -> None:
    for bad in ({names.GPU_FRACTION: "2"}, {names.GPU_SHARE_MEMORY: "x"}, {names.POLICY: "x"}):
        with pytest.raises(ApportionError) as refused:
            shared(bad)
        assert refused.value.code
