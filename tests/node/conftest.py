from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.node.agent_node import AgentNode, agent_node


@pytest.fixture
async def bare() -> AsyncIterator[AgentNode]:
    """A node whose agent has not started yet."""
    async with agent_node() as place:
        yield place


@pytest.fixture
async def node(bare: AgentNode) -> AgentNode:
    """A node with its agent."""
    await bare.start_agent()
    return bare
