"""What pods may not contain, and what only causes a warning."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from apportion.admission import admission_review, guard
from apportion.admission.admission_review import Question
from apportion.apis.errors import RequestError
from apportion.apis.installation import Installation
from tests.admission.reviews import review as asked
from tests.builders.pods import container, pod

ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
SYSTEM = guard.system_namespaces(Installation())
CDI = {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}


def question(obj: dict[str, Any], **request: Any) -> Question:
    return admission_review.parse(msgspec.json.encode(asked(obj, **request)))


def judged(obj: dict[str, Any], **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(guard.judge(question(obj, **request), SYSTEM).body)["response"]
    return answer


def with_env(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pod("story", containers=[container(**more) | {"env": list(entries)}])


@pytest.mark.parametrize(
    "body",
    [
        with_env(ALL),
        with_env({"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}, limits={"nvidia.com/gpu": "1"}),
        with_env({"name": "NVIDIA_VISIBLE_DEVICES"}),
        with_env({"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}),
        with_env(
            {
                "name": "NVIDIA_VISIBLE_DEVICES",
                "value": "void",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            }
        ),
        pod("story", containers=[container()], init=[container("i") | {"env": [ALL]}]),
        pod("story", containers=[container()], annotations=CDI),
    ],
)
def test_g03_d02_devices_named_by_hand_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refusal:
        judged(body)
    assert refusal.value.code == "DeviceByHand"
    assert "resources.limits" in refusal.value.fix


@pytest.mark.parametrize("value", ["void", "none"])
def test_d02_asking_for_no_gpu_is_allowed(value: str) -> None:
    assert judged(with_env({"name": "NVIDIA_VISIBLE_DEVICES", "value": value}))["allowed"]


@pytest.mark.parametrize("namespace", ["gpu-operator", "kube-system", "das-operator"])
def test_d02_system_namespaces_are_exempt(namespace: str) -> None:
    assert judged(with_env(ALL), namespace=namespace)["allowed"]


def test_d02_an_update_is_judged_by_what_it_adds() -> None:
    old = pod("story", containers=[container()], annotations=CDI)
    assert judged(copy.deepcopy(old), old=old, operation="UPDATE")["allowed"]
    for more in ({"cdi.k8s.io/mine": "nvidia.com/gpu=1"}, {**CDI, "cdi.k8s.io/other": "x"}):
        with pytest.raises(RequestError):
            judged(pod("story", containers=[container()], annotations=more), old=old, operation="UPDATE")


def test_d02_ephemeral_containers_are_judged_too() -> None:
    old = pod("story", containers=[container()])
    debugger = {"name": "debug", "image": "busybox", "env": [ALL]}
    new = pod("story", containers=[container()], ephemeralContainers=[debugger])
    with pytest.raises(RequestError, match=r"spec.ephemeralContainers\[0\].env\[NVIDIA_VISIBLE_DEVICES\]"):
        judged(new, old=old, operation="UPDATE", subResource="ephemeralcontainers")
    assert judged(new, old=new, operation="UPDATE", subResource="ephemeralcontainers")["allowed"]


def test_d03_slices_need_a_scheduler_of_ours_and_no_preset_node() -> None:
    slices = {"mig.das.com/1g.5gb": "1"}
    for good in ("das-scheduler", "kai-scheduler"):
        assert judged(pod("story", containers=[container(limits=slices)], schedulerName=good))["allowed"]
    with pytest.raises(RequestError, match="this scheduler does not support MIG slices"):
        judged(pod("story", containers=[container(limits=slices)], schedulerName="theirs"))
    with pytest.raises(RequestError, match="nodeName"):
        judged(pod("story", containers=[container(limits=slices)], schedulerName="das-scheduler", nodeName="n1"))


@pytest.mark.parametrize("annotation", ["gpu-fraction", "gpu-memory"])
def test_d03_a_share_under_another_scheduler_is_warned_about(annotation: str) -> None:
    answer = judged(pod("story", containers=[container()], annotations={annotation: "0.5"}))
    assert answer["allowed"]
    assert answer["warnings"] == [
        f"annotation {annotation} has no effect with scheduler default-scheduler; set schedulerName: kai-scheduler"
    ]
    ours = pod("story", containers=[container()], annotations={annotation: "0.5"}, schedulerName="kai-scheduler")
    assert "warnings" not in judged(ours)
    with pytest.raises(RequestError, match="nodeName"):
        judged(ours | {"spec": ours["spec"] | {"nodeName": "n1"}})


def test_d02_other_objects_and_operations_pass() -> None:
    assert judged(with_env(ALL), operation="DELETE")["allowed"]
    assert judged(with_env(ALL) | {"kind": "PodTemplate"})["allowed"]


def test_s03_slices_beside_a_whole_gpu_are_refused_also_where_nobody_rewrites() -> None:
    asks = {"mig.das.com/1g.5gb": "1", "nvidia.com/gpu": "1"}
    with pytest.raises(RequestError, match="use two containers"):
        judged(pod("story", containers=[container(limits=asks)], schedulerName="das-scheduler"))
