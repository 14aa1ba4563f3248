"""Document 001 on the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story import document_001
from tests.story.document_004_snippets import GPU_POD
from tests.story.serving_cluster import ServingCluster
from tests.story.slice_story import NamespacedKubectl
from tests.story.terminal import Terminal


@pytest.fixture(scope="module")
def sharing_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    cluster = ServingCluster(tmp_path_factory.mktemp("d001"), "--sharing", "--restart-backoff", "0.2")
    yield cluster
    cluster.close()


@pytest.fixture
def terminal(sharing_cluster: ServingCluster, tmp_path: Path) -> Terminal:
    return Terminal(document_001.EXAMPLES, tmp_path / "home", kubeconfig=sharing_cluster.kubeconfig)


@pytest.mark.kubectl
@pytest.mark.timeout(600)
def test_g01_g02_g03_g05_g06_g08_document_001_holds(sharing_cluster: ServingCluster, terminal: Terminal) -> None:
    document_001.walk(NamespacedKubectl(sharing_cluster, "default"), terminal, memory_portion="0.048")


def test_q02_g02_the_example_is_the_pod_of_document_004() -> None:
    assert (document_001.EXAMPLES / "gpu-pod.yaml").read_text().endswith(f"\n{GPU_POD}")


@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_q02_g02_the_pod_of_document_004_runs_in_its_queue(sharing_cluster: ServingCluster, terminal: Terminal) -> None:
    tell = NamespacedKubectl(sharing_cluster, "gpu-workload")
    document_001.pod_of_document_004(tell, terminal, document_001.sample_completes)
