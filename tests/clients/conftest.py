from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.environments.embedded import Embedded


@pytest.fixture(scope="package")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An embedded cluster with a node on which pods run."""
    cluster = Embedded(tmp_path_factory.mktemp("one-node"), "--bare", "--nodes", "1")
    yield cluster
    cluster.close()


@pytest.fixture
def embedded_cluster(one_node: Embedded) -> Embedded:
    """The fixture `namespace` makes its namespace here."""
    return one_node
