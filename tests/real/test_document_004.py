"""Document 004 with every plane in a container on a real kubelet."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.environments.installed import Installed
from tests.environments.waiting import until
from tests.story import document_004
from tests.story.slice_story import NamespacedKubectl

pytestmark = pytest.mark.real

GPUS = [{"product": "NVIDIA-RTX-6000-Ada-Generation", "count": document_004.GPUS}]
ANNOTATION = "apportion.io/emulated-gpus"


@pytest.fixture
def with_whole_gpus(real_planes: Installed) -> Iterator[Installed]:
    """The node of the document: RTX 6000 Ada."""
    node = f"/api/v1/nodes/{real_planes.node.name}"
    before = real_planes.api.get(node)["metadata"].get("annotations", {}).get(ANNOTATION)
    real_planes.api.merge(node, {"metadata": {"annotations": {ANNOTATION: json.dumps(GPUS)}}})
    until(lambda: offered(real_planes, document_004.GPU) == "4", "the GPUs are there", within=60)
    yield real_planes
    real_planes.api.merge(node, {"metadata": {"annotations": {ANNOTATION: before}}})
    until(lambda: offered(real_planes, "mig.das.com/1g.5gb") == "14", "the GPUs are as before", within=60)


def offered(planes: Installed, resource: str) -> str:
    status = planes.api.get(f"/api/v1/nodes/{planes.node.name}")["status"]
    return str(status["allocatable"].get(resource, ""))


@pytest.mark.timeout(1200)
def test_q01_q03_q04_q05_q06_q12_x01_document_004_holds(with_whole_gpus: Installed, namespace: str) -> None:
    document_004.walk(NamespacedKubectl(with_whole_gpus, namespace), with_whole_gpus.cluster.kubeconfig)
    with_whole_gpus.await_ready()
