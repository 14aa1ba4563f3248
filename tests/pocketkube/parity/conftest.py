"""Every test here runs on the embedded cluster and on a real control plane, with the same assertions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.raw_requests import RawRequests, until
from tests.environments.cluster import Cluster


@pytest.fixture
async def ask(any_cluster: Cluster) -> AsyncIterator[RawRequests]:
    async with RawRequests(any_cluster.kubeconfig) as asking:
        yield asking


@pytest.fixture
async def pods(ask: RawRequests, namespace: str) -> str:
    """The path of pods, once the namespace can have some."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"

    async def there() -> bool:
        return (await ask("GET", account)).code == 200

    await until(there, "the namespace has its default service account")
    return f"/api/v1/namespaces/{namespace}/pods"
