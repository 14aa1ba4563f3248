from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from apportion.cluster.client import Client
from tests.cluster.scripted_api import ScriptedApi, serving


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()


@pytest.fixture
async def client(api: ScriptedApi) -> AsyncIterator[Client]:
    async with serving(api) as client:
        yield client
