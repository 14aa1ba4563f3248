"""Document 004 on the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.story import document_004
from tests.story.serving_cluster import ServingCluster
from tests.story.slice_story import NamespacedKubectl


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    """With the node of the document: RTX 6000 Ada."""
    options = ("--topology", str(document_004.EXAMPLES / "topology.yaml"), "--restart-backoff", "0.2")
    cluster = ServingCluster(tmp_path_factory.mktemp("d004"), *options)
    yield cluster
    cluster.close()


@pytest.mark.kubectl
@pytest.mark.timeout(900)
def test_q01_q03_q04_q05_q06_q12_x01_document_004_holds(own_cluster: ServingCluster) -> None:
    document_004.walk(NamespacedKubectl(own_cluster, "default"), own_cluster.kubeconfig)
