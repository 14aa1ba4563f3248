from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.node.ground import Ground, ground


@pytest.fixture
async def bare() -> AsyncIterator[Ground]:
    """A node whose agent has not started yet."""
    async with ground() as place:
        yield place


@pytest.fixture
async def node(bare: Ground) -> Ground:
    """A node with its agent."""
    await bare.start_agent()
    return bare
