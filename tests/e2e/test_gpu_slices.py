"""Pods ask for slices, get their own, wait for one that is free, and give them back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.current_cluster import CurrentCluster, places, smallest
from tests.story.slice_story import NamespacedKubectl, devices_in_log, mig, until

TITLE = "GPU slices"
Json = dict[str, Any]


def test_as_many_pods_as_a_node_holds_run_and_one_more_waits_for_a_free_slice(
    current: CurrentCluster, tell: NamespacedKubectl
) -> None:
    if current.claims():
        pytest.skip("slices are in use: filling a node needs an idle one")
    node = current.sliced_node()
    profile, full = smallest(node), places(node)[smallest(node)]
    tell.apply(on(node, tell.deployment("full", replicas=full, **{mig(profile): "1"})))
    tell.wait_running("full", full, within=300)
    uuids = [claim["status"]["migUUID"] for claim in tell.claims()]
    assert len(set(uuids)) == full
    for pod in tell.running("full"):
        assert_sees_its_own(tell, pod)

    tell.apply(on(node, tell.deployment("late", replicas=1, **{mig(profile): "1"})))
    until(
        lambda: "FailedScheduling" in tell.kubectl("describe", "pods", "-l", "app=late"),
        lambda: "no event says why it waits:\n" + tell.kubectl("describe", "pods", "-l", "app=late"),
    )
    assert [pod["status"]["phase"] for pod in tell.pods("late")] == ["Pending"]
    tell.kubectl("scale", "deployment/full", f"--replicas={full - 1}")
    tell.wait_running("late", 1)
    (pod,) = tell.running("late")
    assert_sees_its_own(tell, pod)


def test_a_container_with_three_slices_sees_three_devices(current: CurrentCluster, tell: NamespacedKubectl) -> None:
    profile = smallest(current.sliced_node())
    tell.apply(tell.deployment("three", replicas=2, **{mig(profile): "3"}))
    tell.wait_running("three", 2)
    for pod in tell.running("three"):
        assert len(assert_sees_its_own(tell, pod)) == 3
        assert "CUDA_VISIBLE_DEVICES=0,1,2" in tell.kubectl("logs", pod["metadata"]["name"])


def test_a_container_with_two_profiles_gets_one_list(current: CurrentCluster, tell: NamespacedKubectl) -> None:
    node = current.sliced_node()
    small = smallest(node)
    larger = next((name for name in sorted(places(node)) if name.startswith("2g.") and "+" not in name), None)
    if larger is None:
        pytest.skip("the GPUs of this node have no profile of two compute slices")
    tell.apply(tell.deployment("mixed", replicas=1, **{mig(small): "1", mig(larger): "1"}))
    tell.wait_running("mixed", 1)
    (pod,) = tell.running("mixed")
    assert len(assert_sees_its_own(tell, pod)) == 2
    memory = sum(int(found) for found in re.findall(r"g\.(\d+)gb", f"{small} {larger}"))
    assert pod["spec"]["containers"][0]["resources"]["limits"]["gpu.das.com/mem"] == str(memory)


def test_a_deployment_gives_everything_back(current: CurrentCluster, tell: NamespacedKubectl) -> None:
    profile = smallest(current.sliced_node())
    tell.apply(tell.deployment("short", replicas=2, **{mig(profile): "1"}))
    tell.wait_running("short", 2)
    assert len(tell.claims()) == 2
    tell.kubectl("delete", "deployment", "short")
    until(lambda: not tell.claims(), lambda: "claims are left:\n" + tell.kubectl("get", "alloc", "-n", "das-operator"))


def test_a_profile_that_no_gpu_has_is_refused_with_those_that_exist(
    current: CurrentCluster, tell: NamespacedKubectl
) -> None:
    profile = smallest(current.sliced_node())
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": tell.pod_spec({mig("9g.99gb"): "1"})}
    answer = tell.kubectl("create", "-f", "-", input=json.dumps(pod), check=False)
    assert "9g.99gb" in answer
    assert profile in answer


def assert_sees_its_own(tell: NamespacedKubectl, pod: Json) -> list[str]:
    listed = devices_in_log(tell, pod)
    assert sorted(listed) == sorted(claim["status"]["migUUID"] for claim in tell.claims_of(pod)), pod["metadata"][
        "name"
    ]
    return listed


def on(node: Json, deployment: Json) -> Json:
    """The same Deployment, with all its pods on one node."""
    selector = {"kubernetes.io/hostname": node["metadata"]["name"]}
    deployment["spec"]["template"]["spec"]["nodeSelector"] = selector
    return deployment
