from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.scheduler.cluster import ApiCluster
from tests.scheduler.groups.gangs import Gangs


@pytest.fixture
async def gangs(each_cluster: ApiCluster) -> AsyncIterator[Gangs]:
    """On the embedded and on a real API server."""
    made = Gangs(each_cluster)
    await made.install()
    yield made
    await made.clear()
