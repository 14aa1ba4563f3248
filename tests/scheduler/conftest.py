from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.environments import binaries
from tests.environments.control_plane import ControlPlane
from tests.environments.fixtures import require
from tests.scheduler import cluster as clusters
from tests.scheduler.cluster import ApiCluster


@pytest.fixture(scope="session")
def real_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server alone: nodes and pods are whatever a test says they are."""
    require(binaries.CONTROL_PLANE)
    folder = tmp_path_factory.mktemp("scheduler")
    plane = ControlPlane(folder, controllers=False, without_admission=("ServiceAccount", "TaintNodesByCondition"))
    yield plane
    plane.close()


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
