"""D02: which pods and Jobs the API server sends to the webhook, by the conditions as they ship.

The same pods are created on a real API server in `tests/admission`; here the embedded server's reading of
the expressions is held against them.
"""

from __future__ import annotations

from typing import Any

import pytest

from apportion import manifests
from pocketkube.api.admission.expression_variables import Compiler
from tests.admission.samples import created
from tests.builders.pods import container, pod

CONFIGURATION = next(entry for entry in manifests.load() if entry["kind"] == "MutatingWebhookConfiguration")
ENTRIES = {entry["name"]: entry for entry in CONFIGURATION["webhooks"]}
SLICED = {"nvidia.com/mig-1g.5gb": "1"}


GUARD = next(entry for entry in manifests.load() if entry["kind"] == "ValidatingWebhookConfiguration")
ENTRIES |= {entry["name"]: entry for entry in GUARD["webhooks"]}


def reached(name: str, obj: dict[str, Any], *, old: dict[str, Any] | None = None) -> bool:
    values = {"object": obj, "oldObject": old, "request": {"operation": "UPDATE" if old else "CREATE"}}
    compiler = Compiler(with_params=False)
    programs = [compiler.condition(each["expression"]) for each in ENTRIES[name]["matchConditions"]]
    return all(program.is_true(values) for program in programs)


def job(**template: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}


WANTED = {
    "limits": pod("story", containers=[container(limits=SLICED)]),
    "requests": pod("story", containers=[container(requests=SLICED)]),
    "second container": pod("story", containers=[container(), container("b", limits=SLICED)]),
    "init container": pod("story", containers=[container()], init=[container("i", requests=SLICED)]),
    "whole gpu": pod("story", containers=[container(limits={"nvidia.com/gpu": "1"})]),
    "slice": pod("story", containers=[container(limits={"mig.das.com/1g.5gb": "1"})]),
    "memory": pod("story", containers=[container(limits={"gpu.das.com/mem": "1"})]),
    "fraction": pod("story", containers=[container()], annotations={"gpu-fraction": "0.5"}),
    "share of memory": pod("story", containers=[container()], annotations={"gpu-memory": "1"}),
    "container of a share": pod("story", containers=[container()], annotations={"gpu-fraction-container-name": "main"}),
    "devices of a share": pod("story", containers=[container()], annotations={"gpu-fraction-num-devices": "1"}),
}
UNWANTED = {
    "plain": pod("story", containers=[container(limits={"cpu": "1"}, requests={"memory": "1Gi"})]),
    "no resources": pod("story", containers=[{"name": "c", "image": "i"}]),
    "lookalike": pod("story", containers=[container(limits={"example.com/nvidia.com": "1", "xnvidia.com/gpu": "1"})]),
    "void": pod("story", containers=[container() | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}]),
    "none": pod(
        "story",
        containers=[
            container() | {"env": [{"name": "A", "value": "all"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]}
        ],
    ),
    "variables from elsewhere": pod("story", containers=[container(envFrom=[{"configMapRef": {"name": "a"}}])]),
    "other annotation": pod("story", containers=[container()], annotations={"example.com/cdi.k8s.io": "x"}),
    "lookalikes of a share": pod("story", containers=[container()], annotations={"x/gpu-fraction": "1", "mps": "true"}),
    "null lists": {"metadata": {"name": "x"}, "spec": {"containers": None, "initContainers": None}},
    "nothing": {"metadata": {"name": "x"}, "spec": {}},
}


@pytest.mark.parametrize("case", sorted(WANTED))
def test_d02_pods_that_name_a_gpu_are_sent(case: str) -> None:
    assert reached("pods.slices.apportion.io", WANTED[case])


@pytest.mark.parametrize("case", sorted(UNWANTED))
def test_d02_all_others_never_reach_the_webhook(case: str) -> None:
    assert not reached("pods.slices.apportion.io", UNWANTED[case])


@pytest.mark.parametrize("case", [case for case in sorted(WANTED) if "annotations" in WANTED[case]["metadata"]])
def test_d02_d03_the_same_annotations_of_a_share_are_sent_to_be_validated(case: str) -> None:
    assert reached("pods.guard.apportion.io", WANTED[case])


def test_d02_d03_mps_is_an_annotation_of_shares_only_for_the_scheduler_that_has_it() -> None:
    def sent(value: str, **spec: str) -> bool:
        body = pod("story", containers=[container()], annotations={"mps": value}, **spec)
        assert not reached("pods.slices.apportion.io", body)
        return reached("pods.guard.apportion.io", body)

    assert sent("true", schedulerName="kai-scheduler")
    assert not sent("false", schedulerName="kai-scheduler")
    assert not sent("true", schedulerName="theirs")
    assert not sent("true")


def test_d02_d05_an_update_is_sent_only_if_the_spec_changes() -> None:
    live = created(pod("story", containers=[container(limits=SLICED)]))
    labelled = live | {"metadata": live["metadata"] | {"labels": {"a": "b"}, "finalizers": []}}
    assert not reached("pod-updates.slices.apportion.io", labelled, old=live)
    changed = live | {"spec": live["spec"] | {"activeDeadlineSeconds": 5}}
    assert reached("pod-updates.slices.apportion.io", changed, old=live)
    plain = pod("story", containers=[container()])
    assert not reached("pod-updates.slices.apportion.io", plain | {"spec": plain["spec"] | {"x": 1}}, old=plain)


@pytest.mark.parametrize("key", ["containers", "initContainers", "ephemeralContainers"])
def test_t05_containers_with_variables_from_elsewhere_are_sent_alone(key: str) -> None:
    name = "environment.gpu-guard.apportion.io"
    plain, unknown = container("a", env=[]), container("b", envFrom=[{"secretRef": {"name": "s"}}])
    body = pod("story", containers=[container()])
    assert reached(name, body | {"spec": body["spec"] | {key: [plain, unknown]}})
    assert not reached(name, body | {"spec": body["spec"] | {key: [plain]}})


def test_t05_containers_beside_a_gpu_are_sent_with_nvidias_runtime() -> None:
    name = "environment.gpu-guard.apportion.io"
    gpu = pod("story", containers=[container(limits=SLICED), container("b")])
    assert not reached(name, gpu)
    nvidia = gpu | {"spec": gpu["spec"] | {"runtimeClassName": "nvidia"}}
    assert reached(name, nvidia)
    labelled = nvidia | {"metadata": {"name": "x", "labels": {"a": "b"}}}
    assert not reached(name, labelled, old=nvidia)
    assert not reached(name, pod("story", containers=[container()], runtimeClassName="nvidia"))


@pytest.mark.parametrize("more", [{"runtimeClassName": "nvidia"}, {"annotations": {"gpu-memory": "1"}}])
def test_t05_containers_that_are_added_beside_a_gpu_are_sent(more: dict[str, Any]) -> None:
    name = "environment.gpu-guard.apportion.io"
    before = pod("story", containers=[container()], **more)
    debugged = before | {"spec": before["spec"] | {"ephemeralContainers": [{"name": "debug"}]}}
    assert reached(name, debugged, old=before)
    plain = pod("story", containers=[container()])
    assert not reached(name, plain | {"spec": plain["spec"] | {"ephemeralContainers": [{"name": "debug"}]}}, old=plain)


def test_m02_jobs_are_sent_by_their_template() -> None:
    name = "jobs.slices.apportion.io"
    wanted = job(spec=pod("story", containers=[container(limits=SLICED)])["spec"])
    assert reached(name, wanted)
    assert reached(
        name, job(spec=pod("story", containers=[container()], init=[container("i", requests=SLICED)])["spec"])
    )
    assert not reached(name, job(spec=pod("story", containers=[container()])["spec"]))
    suspended = wanted | {"spec": wanted["spec"] | {"suspend": True}}
    assert not reached(name, suspended, old=wanted)
