"""GPUs shared on a real node where another device plugin serves them and no agent of ours runs. Rule G10."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.environments import images
from tests.environments.installed import Installed
from tests.environments.node import RealNode
from tests.environments.waiting import NeverHappenedError, until
from tests.real.foreign_plugin import ForeignPlugin
from tests.real.sharing import sharing_planes

pytestmark = pytest.mark.real

UUIDS = [f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(2)]
LABEL, MIB = "nvidia.com/gpu.memory", 16000
GROUP, RESERVED = "runai-gpu-group", "run.ai/reserve_for_gpu_index"
RESERVATIONS = "/api/v1/namespaces/kai-resource-reservation/pods"
REPORTS = "/apis/inference.redhat.com/v1alpha1/namespaces/das-operator/nodeaccelerators"  # of agents
SCRIPT = "trap 'exit 0' TERM; env | grep -e NVIDIA_VISIBLE_DEVICES -e GPU_PORTION; while true; do sleep 0.2; done"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def other_node(real_planes: Installed) -> Iterator[RealNode]:
    """Beside the node with our agent; without the labels that would bring an agent here."""
    node = RealNode(real_planes.node.plane, labels={LABEL: str(MIB)})
    node.import_images(images.apportion())
    yield node
    node.close()


@pytest.fixture(scope="module")
def plugin(other_node: RealNode) -> Iterator[ForeignPlugin]:
    foreign = ForeignPlugin(other_node, UUIDS)
    with foreign.serving():
        yield foreign


@pytest.fixture(scope="module")
def with_sharing(real_planes: Installed, plugin: ForeignPlugin) -> Iterator[Installed]:
    with sharing_planes(real_planes):
        yield real_planes


class Sharers:
    """Pods of one namespace that ask for shares."""

    def __init__(self, planes: Installed, namespace: str) -> None:
        self._planes, self._namespace = planes, namespace
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str, **annotations: str) -> None:
        container = {"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", SCRIPT]}
        metadata = {
            "name": name,
            "labels": {"kai.scheduler/queue": "default-queue"},
            "annotations": {key.replace("_", "-"): value for key, value in annotations.items()},
        }
        spec = {"schedulerName": "kai-scheduler", "containers": [container]}
        self._planes.api.create(self._pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def get(self, name: str) -> Json:
        return self._planes.api.get(f"{self._pods}/{name}")

    def runs(self, name: str) -> Json:
        try:
            until(lambda: self.get(name)["status"]["phase"] == "Running", f"{name} runs", within=90)
        except NeverHappenedError as error:
            error.add_note(self._planes.kubectl("describe", "pod", "-n", self._namespace, name, check=False))
            raise
        return self.get(name)

    def variables(self, name: str) -> dict[str, str]:
        """As the container sees them."""

        def printed() -> dict[str, str]:
            log = self._planes.kubectl("logs", "-n", self._namespace, name, check=False)
            found = dict(re.findall(r"^(NVIDIA_VISIBLE_DEVICES|GPU_PORTION)=(.*)$", log, re.MULTILINE))
            return found if len(found) == 2 else {}

        return until(printed, f"{name} prints its variables", within=30)

    def waits(self, name: str) -> str:
        def said() -> str:
            conditions = self.get(name)["status"].get("conditions", ())
            return next((str(each["message"]) for each in conditions if each.get("reason") == "Unschedulable"), "")

        return until(said, f"{name} is told why it waits", within=60)

    def delete(self, *names: str) -> None:
        self._planes.kubectl("delete", "pod", "-n", self._namespace, "--wait=true", *names)

    def nothing_left(self) -> None:
        api = self._planes.api
        until(lambda: not api.items(RESERVATIONS), "no reservation is left", within=60)
        requests = f"/apis/scheduling.run.ai/v1alpha2/namespaces/{self._namespace}/bindrequests"
        until(lambda: not api.items(requests), "no BindRequest is left", within=60)
        until(lambda: not self._config_maps(), "no ConfigMap is left", within=60)

    def _config_maps(self) -> list[str]:
        found = self._planes.api.items(f"/api/v1/namespaces/{self._namespace}/configmaps")
        return [each["metadata"]["name"] for each in found if "-shared-gpu-" in each["metadata"]["name"]]


@pytest.mark.timeout(600)
def test_g10_pods_share_a_gpu_that_another_device_plugin_serves(
    with_sharing: Installed, plugin: ForeignPlugin, namespace: str
) -> None:
    assert not with_sharing.api.exists(f"{REPORTS}/{plugin.node.name}")
    pods = Sharers(with_sharing, namespace)
    given = len(plugin.given)
    for name in ("a", "b"):
        pods.create(name, gpu_fraction="0.5")
    a, b = pods.runs("a"), pods.runs("b")
    (reservation,) = with_sharing.api.items(RESERVATIONS)
    (uuid,) = plugin.given[given:]
    assert reservation["metadata"]["annotations"][RESERVED] == uuid
    assert {pod["metadata"]["labels"][GROUP] for pod in (a, b, reservation)} == {a["metadata"]["labels"][GROUP]}
    assert {pod["spec"]["nodeName"] for pod in (a, b, reservation)} == {plugin.node.name}
    for name in ("a", "b"):
        assert pods.variables(name) == {"NVIDIA_VISIBLE_DEVICES": uuid, "GPU_PORTION": "0.5"}

    pods.delete("b")
    pods.create("c", gpu_memory=str(MIB // 2))
    c = pods.runs("c")
    assert c["metadata"]["labels"][GROUP] == a["metadata"]["labels"][GROUP]
    assert pods.variables("c")["NVIDIA_VISIBLE_DEVICES"] == uuid
    (written,) = json.loads(c["metadata"]["annotations"]["apportion.io/shared-gpus"])
    assert (written["mib"], written["uuid"]) == (MIB // 2, uuid)
    assert plugin.given[given:] == [uuid]

    pods.delete("a", "c")
    pods.nothing_left()


@pytest.mark.timeout(600)
def test_g10_without_the_label_there_are_only_fractions(
    with_sharing: Installed, plugin: ForeignPlugin, namespace: str
) -> None:
    pods = Sharers(with_sharing, namespace)
    node = f"/api/v1/nodes/{plugin.node.name}"
    with_sharing.api.merge(node, {"metadata": {"labels": {LABEL: None}}})
    try:
        pods.create("memory", gpu_memory="2000")
        assert f"no label {LABEL}" in pods.waits("memory")
        pods.create("fraction", gpu_fraction="0.5")
        pods.runs("fraction")
        assert pods.variables("fraction") == {"NVIDIA_VISIBLE_DEVICES": plugin.given[-1], "GPU_PORTION": "0.5"}
        assert not pods.get("memory")["spec"].get("nodeName")
        with_sharing.api.merge(node, {"metadata": {"labels": {LABEL: str(MIB)}}})
        pods.runs("memory")
        pods.delete("memory", "fraction")
        pods.nothing_left()
    finally:
        with_sharing.api.merge(node, {"metadata": {"labels": {LABEL: str(MIB)}}})
