"""Embedded clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.pocketkube.ground import Ground, embedded


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """One node."""
    async with embedded(tmp_path) as made:
        yield made


@pytest.fixture
async def two_nodes(tmp_path: Path) -> AsyncIterator[Ground]:
    async with embedded(tmp_path, nodes=2) as made:
        yield made
