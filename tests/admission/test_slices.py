"""S01, S03 and D03: how a request for MIG devices becomes one for slices, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.admission.offers import Offers
from apportion.apis.errors import InputError
from tests.admission.samples import CATALOGUED, OFFERS, both, created, patch, resources
from tests.builders.pods import container, pod


def test_s01_limits_become_slices_in_limits_and_requests() -> None:
    after = created(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1", "cpu": "2"})]))
    assert resources(after) == {
        "limits": {"cpu": "2", "mig.das.com/1g.5gb": "1", "gpu.das.com/mem": "5"},
        "requests": {"mig.das.com/1g.5gb": "1", "gpu.das.com/mem": "5"},
    }


def test_s01_requests_alone_are_treated_as_both() -> None:
    after = created(pod("story", containers=[container(requests={"nvidia.com/mig-2g.10gb": 1})]))
    assert resources(after) == both({"mig.das.com/2g.10gb": "1", "gpu.das.com/mem": "10"})


@pytest.mark.parametrize("spelling", ["1g.5gb.me", "1g.5gb-plus-me", "1g.5gb+me"])
def test_s01_a_plus_is_spelt_out_whatever_the_user_wrote(spelling: str) -> None:
    after = created(pod("story", containers=[container(limits={f"nvidia.com/mig-{spelling}": "1"})]))
    assert resources(after) == both({"mig.das.com/1g.5gb-plus-me": "1", "gpu.das.com/mem": "5"})


def test_s01_init_containers_are_rewritten_alike() -> None:
    asks = {"nvidia.com/mig-1g.5gb": "1"}
    after = created(pod("story", containers=[container()], init=[container("prepare", limits=asks)]))
    assert resources(after, key="initContainers") == both({"mig.das.com/1g.5gb": "1", "gpu.das.com/mem": "5"})
    assert resources(after) == {}


def test_s01_a_pod_that_asks_for_slices_itself_gets_the_scheduler_too() -> None:
    after = created(pod("story", containers=[container(limits={"mig.das.com/1g.5gb": "1"})]))
    assert after["spec"]["schedulerName"] == "das-scheduler"
    assert resources(after)["requests"]["mig.das.com/1g.5gb"] == "1"


def test_s01_everything_else_stays() -> None:
    given = pod(
        "story",
        containers=[
            container(limits={"nvidia.com/mig-1g.5gb": "1", "example.com/widget": "3"}, requests={"cpu": "100m"}),
            container("quiet", limits={"memory": "1Gi"}),
        ],
        tolerations=[{"operator": "Exists"}],
        fieldOfTomorrow={"deep": [1, {"a/b~c": None}]},
    )
    given["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]
    after = created(given)
    touched = {"/spec/schedulerName", "/metadata/annotations", "/spec/containers/0/resources"}
    assert all(any(operation["path"].startswith(place) for place in touched) for operation in patch(given))
    assert after["spec"]["containers"][1] == given["spec"]["containers"][1]
    assert resources(after)["limits"]["example.com/widget"] == "3"
    assert resources(after)["requests"]["cpu"] == "100m"


def test_s01_a_pod_without_a_gpu_request_is_left_alone() -> None:
    assert patch(pod("story", containers=[container(limits={"cpu": "1"})], schedulerName="default-scheduler")) == []


def test_s01_whole_gpus_are_left_alone() -> None:
    assert patch(pod("story", containers=[container(limits={"nvidia.com/gpu": "1"})])) == []


def test_s02_a_runtime_class_is_set_only_where_configured_and_never_overwritten() -> None:
    asks = container(limits={"nvidia.com/mig-1g.5gb": "1"})
    assert "runtimeClassName" not in created(pod("story", containers=[asks]))["spec"]
    assert created(pod("story", containers=[asks]), runtime_class="nvidia")["spec"]["runtimeClassName"] == "nvidia"
    assert (
        created(pod("story", containers=[asks], runtimeClassName="mine"), runtime_class="nvidia")["spec"][
            "runtimeClassName"
        ]
        == "mine"
    )
    assert "runtimeClassName" not in created(pod("story", containers=[container()]), runtime_class="nvidia")["spec"]


@pytest.mark.parametrize("zero", [0, "0", "0m", "0.0"])
def test_s03_a_quantity_of_zero_is_ignored(zero: Any) -> None:
    assert (
        patch(
            pod(
                "story", containers=[container(limits={"nvidia.com/mig-1g.5gb": zero, "nvidia.com/mig-9g.999gb": zero})]
            )
        )
        == []
    )


def test_s03_an_unknown_profile_is_refused_with_those_that_exist() -> None:
    refusal = refused(pod("story", containers=[container(), container("b", limits={"nvidia.com/mig-3g.71gb": "1"})]))
    assert refusal.code == "UnknownProfile"
    assert refusal.field == "spec.containers[1].resources.limits[nvidia.com/mig-3g.71gb]"
    assert refusal.value == "3g.71gb"
    assert "profiles of this cluster: 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb" in str(refusal)


def test_s03_an_unknown_slice_resource_is_refused_too() -> None:
    assert refused(pod("story", containers=[container(limits={"mig.das.com/gpu": "1"})])).code == "UnknownProfile"


def test_s03_without_any_gpu_the_catalog_is_listed() -> None:
    refusal = refused(
        pod("story", containers=[container(limits={"nvidia.com/mig-huge": "1"})]), Offers(catalogued=CATALOGUED)
    )
    assert "known profiles: 1g.5gb" in str(refusal)


def test_d04_a_profile_that_is_merely_not_here_is_admitted() -> None:
    after = created(pod("story", containers=[container(limits={"nvidia.com/mig-2g.20gb": "1"})]))
    assert resources(after) == both({"mig.das.com/2g.20gb": "1", "gpu.das.com/mem": "20"})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("-1", "negative"),
        (-3, "negative"),
        ("0.5", "whole number"),
        ("500m", "whole number"),
        (1.5, "whole number"),
        ("", "number"),
        ("one", "number"),
        ("NaN", "number"),
        (True, "quantity"),
        (None, "quantity"),
        ([1], "quantity"),
        ("1e30", "smaller number"),
    ],
)
def test_s03_a_bad_quantity_is_refused_with_field_value_and_fix(value: Any, says: str) -> None:
    refusal = refused(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": value})]))
    assert refusal.field == "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]"
    assert refusal.value == value
    assert says in refusal.fix


@pytest.mark.parametrize("value", ["2000m", "2e0", "0.002k", 2, 2.0])
def test_s03_a_whole_quantity_in_any_spelling_is_understood(value: Any) -> None:
    after = created(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": value})]))
    assert resources(after) == both({"mig.das.com/1g.5gb": "2", "gpu.das.com/mem": "10"})


@pytest.mark.parametrize("other", ["mig.das.com/1g.5gb", "mig.das.com/1g.5gb-plus-me"])
def test_s03_both_spellings_in_one_container_are_refused(other: str) -> None:
    mine = "nvidia.com/mig-1g.5gb" + (".me" if other.endswith("me") else "")
    refusal = refused(pod("story", containers=[container(limits={mine: "1", other: "1"})]))
    assert refusal.code == "TwoSpellings"
    assert mine in str(refusal)
    assert other in str(refusal)


def test_s03_both_spellings_in_two_containers_are_no_contradiction() -> None:
    after = created(
        pod(
            "story",
            containers=[
                container("a", limits={"nvidia.com/mig-1g.5gb": "1"}),
                container("b", limits={"mig.das.com/1g.5gb": "1"}),
            ],
        )
    )
    assert resources(after, 0) == resources(after, 1)


def test_s03_limits_and_requests_that_differ_are_refused() -> None:
    asks = {"nvidia.com/mig-1g.5gb": "2"}
    refusal = refused(pod("story", containers=[container(limits=asks, requests={"nvidia.com/mig-1g.5gb": "1"})]))
    assert refusal.code == "UnequalAmounts"


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        (None, "das-scheduler"),
        ("", "das-scheduler"),
        ("default-scheduler", "das-scheduler"),
        ("das-scheduler", "das-scheduler"),
        ("kai-scheduler", "kai-scheduler"),
    ],
)
def test_d03_scheduler_names(written: str | None, becomes: str) -> None:
    spec: dict[str, Any] = {} if written is None else {"schedulerName": written}
    after = created(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1"})], **spec))
    assert after["spec"]["schedulerName"] == becomes


def test_d03_a_foreign_scheduler_is_refused_with_a_sentence() -> None:
    refusal = refused(pod("story", containers=[container(limits={"mig.das.com/1g.5gb": "1"})], schedulerName="volcano"))
    assert (refusal.code, refusal.field, refusal.value) == ("ForeignScheduler", "spec.schedulerName", "volcano")
    assert "das-scheduler or kai-scheduler" in refusal.fix


def test_d03_a_foreign_scheduler_without_slices_is_accepted() -> None:
    assert patch(pod("story", containers=[container(limits={"nvidia.com/gpu": "1"})], schedulerName="volcano")) == []


def test_d03_a_preset_node_with_slices_is_refused() -> None:
    refusal = refused(pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1"})], nodeName="n1"))
    assert (refusal.code, refusal.field, refusal.value) == ("PresetNode", "spec.nodeName", "n1")
    assert "kubernetes.io/hostname" in refusal.fix


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": {"name": "x"}},
        {"containers": ["x"]},
        {"containers": [{"name": "x", "resources": []}]},
        {"containers": [{"name": "x", "resources": {"limits": "many"}}]},
    ],
)
def test_d04_misshapen_pods_are_refused_not_crashed_on(spec: dict[str, Any]) -> None:
    assert refused({"metadata": {}, "spec": spec}).field.startswith("spec.containers")


def refused(given: dict[str, Any], offers: Offers = OFFERS) -> InputError:
    with pytest.raises(InputError) as caught:
        created(given, offers)
    return caught.value


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "mig.das.com/1g.5gb"])
def test_s03_slices_beside_a_whole_gpu_in_one_container_are_refused(resource: str) -> None:
    both_kinds = {resource: "1", "nvidia.com/gpu": "2"}
    with pytest.raises(InputError) as refused:
        created(pod("story", containers=[container(), container("second", limits=both_kinds)]))
    assert refused.value.field == "spec.containers[1].resources.limits[nvidia.com/gpu]"
    assert refused.value.value == 2
    assert resource in refused.value.fix
    assert "use two containers" in refused.value.fix


def test_s03_slices_and_a_whole_gpu_in_two_containers_or_none_of_the_latter_are_fine() -> None:
    slice_, whole = {"nvidia.com/mig-1g.5gb": "1"}, {"nvidia.com/gpu": "1"}
    after = created(pod("story", containers=[container(limits=slice_), container("second", limits=whole)]))
    assert resources(after, 1) == {"limits": whole}
    assert created(pod("story", containers=[container(limits=slice_ | {"nvidia.com/gpu": "0"})]))
