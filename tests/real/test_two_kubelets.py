"""The document's two nodes as two real kubelets: 12 pods keep 2g.20gb, 32 fall back and run, the 45th waits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from apportion.apis import migconfig
from tests.environments import binaries, fixtures, images
from tests.environments.control_plane import ControlPlane
from tests.environments.installed import MANIFESTS, Installed
from tests.environments.node import RealNode
from tests.environments.waiting import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.environ.get("APPORTION_SOAK") != "1", reason="45 containers on two kubelets: `make soak`"),
]

SMALL, MEDIUM = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
GPUS = '[{"product": "NVIDIA-H200", "count": 4, "memoryMiB": 71680}]'
SMALL_CUT = [("1g.10gb", start, 1) for start in range(7)]
MEDIUM_CUT = [("2g.20gb", 0, 2), ("2g.20gb", 2, 2), ("2g.20gb", 4, 2), ("1g.10gb", 6, 1)]
PODS = "/api/v1/namespaces/default/pods"
FALLBACK = "gpu-webhook.k8s.io/fallback"

Json = dict[str, Any]


@pytest.fixture
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    fixtures.require(binaries.CONTROL_PLANE + binaries.NODE)
    plane = ControlPlane(tmp_path_factory.mktemp("two"))
    try:
        small, medium = _node(plane, SMALL_CUT), _node(plane, MEDIUM_CUT)
        medium.import_images(images.apportion())
        installed = Installed(small)
        installed.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "fallback"))
        installed.kubectl("rollout", "status", "-n", "gpu-webhook", "deployment/gpu-webhook", "--timeout=120s")
        until(lambda: _capacity(plane, small.name) == {SMALL: "28"}, "the small node has its devices", within=90)
        until(lambda: _capacity(plane, medium.name) == {SMALL: "4", MEDIUM: "12"}, "and the medium one", within=90)
        yield installed
    finally:
        plane.close()


def test_f04_pods_13_to_44_run_as_1g_and_the_45th_waits_on_two_real_kubelets(planes: Installed) -> None:
    for number in range(45):
        create(planes, f"p{number:02}")
    until(lambda: phases(planes)["Running"] == 44, "44 pods run", within=400, pause=1)
    pods = planes.cluster.api.items(PODS)
    fell = [pod["metadata"]["name"] for pod in pods if FALLBACK in pod["metadata"].get("annotations", {})]
    assert sorted(fell) == [f"p{number:02}" for number in range(12, 45)]
    assert phases(planes) == {"Running": 44, "Pending": 1}
    until(lambda: f"Insufficient {SMALL}" in planes.kubectl("events", "--for", "pod/p44"), "the 45th is told why")
    devices = [visible(planes, pod["metadata"]["name"]) for pod in pods if pod["status"]["phase"] == "Running"]
    assert len(set(devices)) == 44

    planes.kubectl("delete", "pod", "p00", "p01", "p02", "p03")
    for number in range(4):
        create(planes, f"again{number}")
    until(lambda: phases(planes)["Running"] == 44, "the next four run", within=120, pause=0.5)
    again = [planes.cluster.api.get(f"{PODS}/again{number}") for number in range(4)]
    assert [FALLBACK in pod["metadata"].get("annotations", {}) for pod in again] == [False] * 4


def _node(plane: ControlPlane, cut: list[tuple[str, int, int]]) -> RealNode:
    layout = migconfig.render(dict.fromkeys(range(4), cut))
    annotations = {"apportion.io/emulated-gpus": GPUS, "run.ai/mig.config": layout}
    return RealNode(plane, labels={"nvidia.com/mig.capable": "true"}, annotations=annotations)


def _capacity(plane: ControlPlane, node: str) -> dict[str, str]:
    status = plane.api.get(f"/api/v1/nodes/{node}")["status"]
    return {key: value for key, value in status["allocatable"].items() if key.startswith("nvidia.com/mig-")}


def create(planes: Installed, name: str) -> None:
    script = "trap 'exit 0' TERM; echo $NVIDIA_VISIBLE_DEVICES; while true; do sleep 1; done"
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "resources": {"limits": {MEDIUM: "1"}},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    planes.cluster.api.create(PODS, pod)


def phases(planes: Installed) -> Counter[str]:
    return Counter(pod["status"]["phase"] for pod in planes.cluster.api.items(PODS))


def visible(planes: Installed, name: str) -> str:
    return until(lambda: planes.kubectl("logs", name).strip(), f"{name} prints its device")
