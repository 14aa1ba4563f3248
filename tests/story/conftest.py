from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.environments.waiting import until
from tests.story.serving_cluster import ServingCluster


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    """An embedded cluster with one node of two emulated A100s and every plane running."""
    cluster = ServingCluster(tmp_path_factory.mktemp("served"))
    yield cluster
    cluster.close()


@pytest.fixture
def story_namespace(served: ServingCluster) -> Iterator[str]:
    name = f"story-{secrets.token_hex(3)}"
    served.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    served.api.delete(f"/api/v1/namespaces/{name}")
    until(lambda: not served.api.exists(f"/api/v1/namespaces/{name}"), "the namespace is gone")
