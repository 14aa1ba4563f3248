"""Document 003 on the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.story import document_003
from tests.story.serving_cluster import ServingCluster
from tests.story.slice_story import NamespacedKubectl


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    """Not the shared one: the walk switches the mode of the whole cluster."""
    cluster = ServingCluster(tmp_path_factory.mktemp("d003"))
    yield cluster
    cluster.close()


@pytest.mark.kubectl
@pytest.mark.timeout(900)
def test_s06_s10_s11_s12_s14_document_003_holds_word_for_word(own_cluster: ServingCluster) -> None:
    document_003.walk(NamespacedKubectl(own_cluster, "default"), own_cluster.kubeconfig)
