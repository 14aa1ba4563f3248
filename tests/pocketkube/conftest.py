"""Embedded clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.pocketkube.cluster import RunningCluster, embedded


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """One node."""
    async with embedded(tmp_path) as made:
        yield made


@pytest.fixture
async def two_nodes(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with embedded(tmp_path, nodes=2) as made:
        yield made
