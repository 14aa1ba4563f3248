from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.environments.control_plane import ControlPlane
from tests.scheduler import cluster as clusters
from tests.scheduler.cluster import ApiCluster


@pytest.fixture
async def cluster() -> AsyncIterator[ApiCluster]:
    async with clusters.embedded() as made:
        yield made


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def each_cluster(request: pytest.FixtureRequest) -> AsyncIterator[ApiCluster]:
    if request.param == "embedded":
        async with clusters.embedded() as made:
            yield made
        return
    plane: ControlPlane = request.getfixturevalue("real_api")
    async with clusters.prepared(plane.kubeconfig) as made:
        yield made
