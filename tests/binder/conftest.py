from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.binder.cluster import SharingCluster, sharing
from tests.scheduler import conftest as scheduler
from tests.scheduler.cluster import ApiCluster

cluster = scheduler.cluster
each_cluster = scheduler.each_cluster


@pytest.fixture
async def embedded(cluster: ApiCluster) -> AsyncIterator[SharingCluster]:
    async with sharing(cluster) as made:
        yield made


@pytest.fixture
async def shared(each_cluster: ApiCluster) -> AsyncIterator[SharingCluster]:
    """On the embedded API server and on a real one."""
    async with sharing(each_cluster) as made:
        yield made
