"""Document 003 on the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.story import document_003
from tests.story.served import Served
from tests.story.telling import Teller


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Not the shared one: the walk switches the mode of the whole cluster."""
    cluster = Served(tmp_path_factory.mktemp("d003"))
    yield cluster
    cluster.close()


@pytest.mark.kubectl
@pytest.mark.timeout(900)
def test_s06_s10_s11_s12_s14_document_003_holds_word_for_word(own_cluster: Served) -> None:
    document_003.walk(Teller(own_cluster, "default"), own_cluster.kubeconfig)
